"""The files of a sut.toml are hashed while they are packed, and an identity covers all of an agent."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from codegenie.eval.errors import SutSpecInvalid
from codegenie.eval.suts.agent_spec.agent_files import handed_over_files, packed_agent_files, program_digest
from codegenie.eval.suts.agent_spec.identity import IdentityParts, agent_digest, version_line
from codegenie.eval.suts.agent_spec.reading import decoded_spec
from codegenie.eval.suts.agent_spec.records import AgentSpec
from codegenie.eval.system.packed_tree import unpack

LEAST = 'schema = 1\nname = "agent"\ncommand = ["agent"]\n'


def spec_of(text: str = "") -> AgentSpec:
    return decoded_spec((LEAST + text).encode(), "sut.toml")


def files_spec(*names: str) -> AgentSpec:
    return spec_of(f"files = {[*names]!r}\n")


def digest_of(directory: Path, *names: str) -> str:
    with packed_agent_files(files_spec(*names), directory) as packed:
        return packed.digest


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "prompts" / "deep").mkdir(parents=True)
    (tmp_path / "run.py").write_text("#!/bin/sh\n", encoding="utf-8")
    (tmp_path / "run.py").chmod(0o755)
    (tmp_path / "prompts" / "a.txt").write_text("a", encoding="utf-8")
    (tmp_path / "prompts" / "deep" / "b.txt").write_text("b", encoding="utf-8")
    (tmp_path / "prompts.bak").write_text("c", encoding="utf-8")
    (tmp_path / "not-named").write_text("secret", encoding="utf-8")
    return tmp_path


def test_files_and_directories_are_unpacked_as_they_were(
    tree: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path_factory.mktemp("agent")
    with packed_agent_files(files_spec("run.py", "prompts/", "prompts.bak"), tree) as packed:
        monkeypatch.chdir(target)
        unpack(packed.descriptor)

    assert sorted(path.relative_to(target).as_posix() for path in target.rglob("*") if path.is_file()) == [
        "prompts.bak",
        "prompts/a.txt",
        "prompts/deep/b.txt",
        "run.py",
    ]
    assert os.access(target / "run.py", os.X_OK)
    assert (target / "prompts" / "deep" / "b.txt").read_text(encoding="utf-8") == "b"


def test_the_digest_does_not_depend_on_the_order_of_the_names(tree: Path) -> None:
    assert digest_of(tree, "run.py", "prompts/", "prompts.bak") == digest_of(
        tree, "prompts.bak", "prompts", "run.py"
    )
    one_by_one = digest_of(tree, "run.py", "prompts/deep/b.txt", "prompts/a.txt", "prompts.bak")
    assert one_by_one == digest_of(tree, "run.py", "prompts/", "prompts.bak")


def test_another_byte_another_name_and_another_mode_are_another_digest(tree: Path) -> None:
    names = ("run.py", "prompts/")
    digests = {digest_of(tree, *names)}
    (tree / "prompts" / "a.txt").write_text("A", encoding="utf-8")
    digests.add(digest_of(tree, *names))
    (tree / "prompts" / "a.txt").rename(tree / "prompts" / "z.txt")
    digests.add(digest_of(tree, *names))
    (tree / "run.py").chmod(0o644)
    digests.add(digest_of(tree, *names))

    assert len(digests) == 4


def test_a_file_that_is_not_named_does_not_count(tree: Path) -> None:
    before = digest_of(tree, "run.py")
    (tree / "not-named").write_text("other", encoding="utf-8")

    assert digest_of(tree, "run.py") == before


def test_a_spec_without_files_has_an_empty_parcel(tmp_path: Path) -> None:
    with packed_agent_files(spec_of(), tmp_path) as packed:
        assert os.fstat(packed.descriptor).st_size > 0


def sparse(path: Path, size: int) -> None:
    with open(path, "wb") as file:
        file.truncate(size)


HOSTILE: dict[str, Any] = {
    "missing": lambda _: None,
    "link": lambda path: path.symlink_to("run.py"),
    "link-to-directory": lambda path: path.symlink_to("prompts"),
    "pipe": os.mkfifo,
    "gigabyte": lambda path: sparse(path, 1 << 30),
    "hard-link": lambda path: os.link(path.parent / "run.py", path),
}


@pytest.mark.parametrize("kind", HOSTILE)
@pytest.mark.parametrize("inside", [False, True], ids=["named", "in a directory"])
def test_what_is_not_a_small_regular_file_is_refused(tree: Path, kind: str, inside: bool) -> None:
    if inside and kind == "missing":
        HOSTILE["link"](tree / "prompts" / kind)
    elif inside:
        if kind == "hard-link":
            os.link(tree / "run.py", tree / "prompts" / kind)
        else:
            HOSTILE[kind](tree / "prompts" / kind)
    else:
        HOSTILE[kind](tree / kind)

    with pytest.raises(SutSpecInvalid, match=r"^files: "):
        digest_of(tree, "prompts/" if inside else kind)


def test_a_file_behind_a_linked_directory_is_refused(tree: Path) -> None:
    (tree / "other").symlink_to("prompts")

    with pytest.raises(SutSpecInvalid, match="goes through a symbolic link"):
        digest_of(tree, "other/a.txt")


def test_a_device_is_refused_before_it_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("opened")

    monkeypatch.setattr("codegenie.eval.suts.agent_spec.agent_files.open_plain_file", refuse)
    with pytest.raises(SutSpecInvalid, match="neither a regular file nor a directory"):
        digest_of(Path("/dev"), "null")


def test_a_file_that_is_too_large_by_itself_is_refused(tree: Path) -> None:
    sparse(tree / "large", 40 << 20)

    with pytest.raises(SutSpecInvalid, match="large: is larger than 33554432 bytes"):
        digest_of(tree, "large")


def test_many_files_that_are_too_large_together_are_refused(tree: Path) -> None:
    for number in range(5):
        sparse(tree / f"part{number}", 30 << 20)

    with pytest.raises(SutSpecInvalid, match="bytes in all"):
        digest_of(tree, *(f"part{number}" for number in range(5)))


# Files of the home.


def handed(tmp_path: Path, source: str) -> dict[str, bytes]:
    return dict(handed_over_files(spec_of(f'[home]\n"auth.json" = {{ from = "{source}" }}\n'), str(tmp_path)))


def test_a_file_that_the_user_hands_over_is_read_also_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "real.json").write_bytes(b"{}")
    (tmp_path / "auth.json").symlink_to("real.json")

    assert handed(tmp_path, "~/auth.json") == {"auth.json": b"{}"}


def test_a_handed_over_file_that_is_missing_large_or_a_pipe_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    sparse(tmp_path / "large", 2 << 20)
    for source in ("~/missing", "~/pipe", "~/large", "/dev/zero", str(tmp_path)):
        with pytest.raises(SutSpecInvalid, match=r"^home: "):
            handed(tmp_path, source)


# Identity.

PARTS = IdentityParts(
    files_digest="f",
    program_digest="p",
    version_line="agent 1.0",
    model="model-a",
    network="broker",
    preset_revision="r",
    passed={"LANG": "0" * 32},
)
BROKER = """[network]
mode = "broker"
[broker]
upstream = "https://a.example"
credential = { env = "A_KEY", header = "x" }
url_env = { A_URL = "{broker}" }
paths = ["/v1"]
"""


@pytest.mark.parametrize(
    "change",
    [
        {"files_digest": "g"},
        {"program_digest": "q"},
        {"version_line": "agent 1.1"},
        {"version_line": None},
        {"model": "model-b"},
        {"model": None},
        {"network": "host"},
        {"preset_revision": "s"},
        {"preset_revision": None},
        {"passed": {}},
        {"passed": {"LANG": "1" * 32}},
    ],
    ids=str,
)
def test_each_part_of_an_agent_is_in_its_digest(change: dict[str, Any]) -> None:
    assert agent_digest(spec_of(BROKER), replace(PARTS, **change)) != agent_digest(spec_of(BROKER), PARTS)


@pytest.mark.parametrize(
    "text",
    [
        BROKER.replace("a.example", "b.example"),
        BROKER + "server_tools = true\n",
        "accept_exit = [0, 1]\n" + BROKER,
        "[limits]\nprocesses = 16\n" + BROKER,
        "[limits]\ncost_usd = 1\n" + BROKER,
        "[environment]\nset = { A = '1' }\n" + BROKER,
        "[workspace]\ngit = 'init'\n" + BROKER,
    ],
)
def test_each_line_of_the_file_is_in_the_digest(text: str) -> None:
    assert agent_digest(spec_of(text), PARTS) != agent_digest(spec_of(BROKER), PARTS)


def test_the_time_that_an_agent_gets_and_comments_are_not_in_its_digest() -> None:
    same = "# a comment\n[limits]\nseconds = 7\n" + BROKER

    assert agent_digest(spec_of(same), PARTS) == agent_digest(spec_of(BROKER), PARTS)


def test_a_version_is_the_first_line_that_is_not_empty_made_safe() -> None:
    assert version_line(b"\n  codex-cli 0.166.0  \nmore\n") == "codex-cli 0.166.0"
    assert version_line(b"") is None
    assert version_line(b"\n \n") is None
    assert version_line(b"\x1b[31mred\xff") == "\N{REPLACEMENT CHARACTER}[31mred\N{REPLACEMENT CHARACTER}"
    assert len(version_line(b"x" * 10_000_000) or "") == 200


def test_a_program_is_hashed_by_its_bytes(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"a" * 3_000_000)
    (tmp_path / "b").write_bytes(b"a" * 3_000_000 + b"b")

    assert program_digest(str(tmp_path / "a")) == program_digest(str(tmp_path / "a"))
    assert program_digest(str(tmp_path / "a")) != program_digest(str(tmp_path / "b"))
    with pytest.raises(SutSpecInvalid, match="cannot read"):
        program_digest(str(tmp_path / "missing"))
