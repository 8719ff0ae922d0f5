"""One run in one file: packed, checked elsewhere, judged elsewhere, and what a hostile bundle cannot do."""

import io
import os
import stat
import struct
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from codegenie.eval.errors import DecodingRefused, EvalError
from codegenie.eval.log import bundle as bundles
from codegenie.eval.log.bundle import opened_log
from codegenie.eval.log.chain import Link
from codegenie.eval.log.reading import verify_log
from codegenie.eval.system.clock import SystemClock
from tests.support.benches import TASK_CLASS
from tests.support.logs import record_files
from tests.support.working_directory import UNITS, Desk, copied


@pytest.fixture
def bundle(desk: Desk) -> Path:
    """Pack the recorded run."""
    said = desk.ask("export", desk.run_id, "-o", "run.zip")
    assert said.code == 0, said.err
    return desk.directory / "run.zip"


def members(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as packed:
        return {name: packed.read(name) for name in packed.namelist()}


def pack(path: Path, content: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, raw in content.items():
            packed.writestr(name, raw)
    return path


# Packing.


def test_a_bundle_is_verified_and_judged_where_there_is_nothing_but_itself_and_the_bench(
    desk: Desk, bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    head = desk.ask("verify", "--json").document["chain_head"]
    elsewhere = Desk(tmp_path / "elsewhere", capsys)
    elsewhere.directory.mkdir()
    (elsewhere.directory / "claim").write_bytes(bundle.read_bytes())

    alone = elsewhere.ask("verify", "--out", "claim", "--expect-head", head, "--json")
    copied(desk.directory / "bench", elsewhere.directory / "bench")
    copied_policy = (desk.directory / "trust-tiers.yaml").read_bytes()
    (elsewhere.directory / "trust-tiers.yaml").write_bytes(copied_policy)
    checked = elsewhere.ask("verify", "--out", "claim", "--rescore", "--json")
    assert elsewhere.verdict("--out", "claim").refusal == (4, "NotMeasured")
    verdict = elsewhere.verdict("--out", "claim", "--run", "latest")
    shown = elsewhere.ask("show", "latest", "case-00", "--output", "--out", "claim")

    assert (alone.code, alone.document["not_checked"]) == (0, ["case_digests"])
    assert alone.document["chain_head"] == head
    assert (checked.code, checked.document["not_checked"]) == (0, [])
    assert checked.document["rescored"] == UNITS
    assert (verdict.code, verdict.document["verdict"]) == (0, "sufficient")
    assert shown.out.startswith("--- case-00#0 output, in the words of the agent\n| {\n")
    assert sorted(path.name for path in elsewhere.directory.iterdir()) == [
        "bench",
        "claim",
        "trust-tiers.yaml",
    ]


def test_without_the_bench_a_bundle_is_verified_and_not_sufficient(
    desk: Desk, bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    elsewhere = Desk(tmp_path, capsys)
    policy = str(desk.directory / "trust-tiers.yaml")
    said = elsewhere.verdict("--out", str(bundle), "--tiers", policy, "--run", "latest")

    assert (said.code, said.document["verdict"]) == (1, "insufficient")
    assert [reason.partition(":")[0] for reason in said.document["reasons"]] == ["bench_missing"]


def test_a_bundle_holds_the_later_looks_too(desk: Desk) -> None:
    first = desk.run_id
    desk.run("right", "--no-cache")
    packed = desk.ask("export", first, "-o", "run.zip", "--json").document
    said = desk.ask("verify", "--out", "run.zip", "--expect-head", packed["chain_head"], "--json").document
    judged = [desk.verdict("--run", first, *where).document for where in ((), ("--out", "run.zip"))]

    assert (said["records"], said["runs"]) == (4, 2)
    assert said["chain_head"] == packed["chain_head"] == desk.ask("verify", "--json").document["chain_head"]
    assert judged[0]["looks"] == judged[1]["looks"] == 2
    desk.run("right", "--no-cache")
    head = desk.ask("verify", "--json").document["chain_head"]
    assert desk.verdict("--expect-head", head).code == 0
    assert desk.verdict("--expect-head", head, "--out", "run.zip").refusal == (3, "ChainTamperDetected")
    text = desk.ask("promote-verdict", TASK_CLASS, "--tier", "bronze", "--out", "run.zip", "--run", first)
    assert (text.code, "does not hold looks made after it" in text.out) == (0, True)
    assert desk.ask("show", first, "--out", "run.zip").code == 0
    assert desk.ask("export", "latest", "--out", "run.zip", "-o", "again.zip").code == 0


def test_the_same_run_packs_to_the_same_bytes(desk: Desk, bundle: Path) -> None:
    desk.ask("export", "latest", "-o", "again.zip")

    assert (desk.directory / "again.zip").read_bytes() == bundle.read_bytes()


def test_a_bundle_holds_only_what_belongs_to_the_run(desk: Desk) -> None:
    desk.run("wrong")
    desk.ask("export", desk.run_id, "-o", "run.zip")
    artefacts = [name for name in members(desk.directory / "run.zip") if name.startswith("artifacts/")]
    kept = [path for path in (desk.log / "artifacts").rglob("*") if path.is_file()]

    assert 0 < len(artefacts) < len(kept)


def test_a_run_that_has_not_finished_or_does_not_exist_is_not_packed(desk: Desk) -> None:
    record_files(desk.log)[1].unlink()
    first = record_files(desk.log)[0].read_bytes()
    (desk.log / "HEAD").write_bytes(Link().after(first).encode())

    assert desk.ask("export", "latest", "-o", "run.zip", "--json").refusal == (4, "NotMeasured")
    assert desk.ask("export", "nothing", "-o", "run.zip", "--json").refusal == (4, "NotMeasured")
    assert not (desk.directory / "run.zip").exists()


def test_a_bundle_is_never_written_into_the_log_nor_over_anything_but_a_file(desk: Desk) -> None:
    before = {path: path.read_bytes() for path in desk.log.rglob("*") if path.is_file()}
    (desk.directory / "link").symlink_to(desk.log)
    os.mkfifo(desk.directory / "pipe")
    for target in (
        ".codegenie/eval/runs/00000001.json",
        ".codegenie/eval/runs/HEAD",
        ".codegenie/eval/runs/x.zip",
        "link/x.zip",
        "bench",
        "pipe",
    ):
        assert desk.ask("export", "latest", "-o", target, "--json").refusal == (2, "SettingsInvalid"), target
    assert desk.ask("export", "latest", "-o", "no/where.zip", "--json").refusal == (4, "HarnessFailure")

    assert {path: path.read_bytes() for path in desk.log.rglob("*") if path.is_file()} == before
    assert (desk.directory / "pipe").is_fifo()
    assert not list(desk.directory.glob(".*.tmp"))


# Hostile bundles.


def renamed(name: str, old: str = "HEAD") -> Callable[[Path], None]:
    def hostile(path: Path) -> None:
        pack(path, {name if key == old else key: raw for key, raw in members(path).items()})

    return hostile


def added(name: str, raw: bytes = b"x") -> Callable[[Path], None]:
    def hostile(path: Path) -> None:
        pack(path, members(path) | {name: raw})

    return hostile


def twice(path: Path) -> None:
    content = members(path)
    with zipfile.ZipFile(path, "w") as packed:
        for name in content:
            packed.writestr(name, content[name])
        with pytest.warns(UserWarning, match="Duplicate"):
            packed.writestr("00000001.json", content["00000001.json"])


def cut_by_a_zero(path: Path) -> None:
    added("00000002.json#txt")(path)
    path.write_bytes(path.read_bytes().replace(b"json#txt", b"json\x00txt"))


def with_attributes(mode: int) -> Callable[[Path], None]:
    def hostile(path: Path) -> None:
        content = members(path)
        with zipfile.ZipFile(path, "w") as packed:
            for name, raw in content.items():
                info = zipfile.ZipInfo(name)
                info.external_attr = (mode if name == "HEAD" else stat.S_IFREG | 0o644) << 16
                packed.writestr(info, raw)

    return hostile


def packed_by(method: int) -> Callable[[Path], None]:
    def hostile(path: Path) -> None:
        content = members(path)
        with zipfile.ZipFile(path, "w", method) as packed:
            for name, raw in content.items():
                packed.writestr(name, raw)

    return hostile


def central(path: Path, offset: int, form: str, value: int) -> None:
    """Change one field of the first entry of the archive's directory."""
    raw = bytearray(path.read_bytes())
    struct.pack_into(form, raw, raw.index(b"PK\x01\x02") + offset, value)
    path.write_bytes(raw)


def encrypted(path: Path) -> None:
    raw = bytearray(path.read_bytes())
    struct.pack_into("<H", raw, raw.index(b"PK\x03\x04") + 6, 1)
    path.write_bytes(raw)
    central(path, 8, "<H", 1)


def bomb(path: Path) -> None:
    pack(path, {"HEAD": b"1 " + b"0" * 64 + b"\n", "00000000.json": bytes(80 * 1024**2)})


def bomb_of_many(path: Path) -> None:
    zeros = bytes(1024**2)
    pack(path, {f"{index:08}.json": zeros for index in range(80)})


HOSTILE: dict[str, Callable[[Path], object]] = {
    "a way up": added("../escaped"),
    "a way up inside": added("artifacts/../../escaped"),
    "an absolute path": added("/tmp/escaped"),
    "a way up with backslashes": added("..\\escaped"),
    "a drive": added("C:escaped"),
    "a directory": added("artifacts/"),
    "another name": added("registration.py"),
    "a journal": added("journal/run"),
    "a hidden file": added(".lock"),
    "a record beyond eight digits": added("000000002.json"),
    "a record in other digits": added("٠٠٠٠٠٠٠٢.json"),
    "an artefact in the wrong place": added(f"artifacts/00/{'ab' * 32}"),
    "an artefact in capitals": added(f"artifacts/AB/{'AB' * 32}"),
    "a name with a line end": added("00000002.json\n"),
    "a name that is cut by a zero": cut_by_a_zero,
    "a name that steers terminals": added("\x1b[2J"),
    "HEAD in small letters": renamed("head"),
    "a record twice": twice,
    "a link": with_attributes(stat.S_IFLNK | 0o777),
    "a device": with_attributes(stat.S_IFCHR | 0o666),
    "a pipe": with_attributes(stat.S_IFIFO | 0o666),
    "a method that unpacks without bounds": packed_by(zipfile.ZIP_BZIP2),
    "another such method": packed_by(zipfile.ZIP_LZMA),
    "an encrypted member": encrypted,
    "a member of 4 GiB": lambda path: central(path, 24, "<I", 0xFFFFFFFE),
    "a method that does not exist": lambda path: central(path, 10, "<H", 99),
    "a wrong sum": lambda path: central(path, 16, "<I", 0xDEADBEEF),
    "a place outside of the file": lambda path: central(path, 42, "<I", 0x7FFFFFFF),
    "a bomb": bomb,
    "a bomb of many parts": bomb_of_many,
    "nothing": lambda path: path.write_bytes(b""),
    "no archive": lambda path: path.write_bytes(b"00000000.json"),
    "an archive of another kind": lambda path: path.write_bytes(b"\x1f\x8b" + bytes(1000)),
    "a cut": lambda path: path.write_bytes(path.read_bytes()[:-40]),
    "half of it": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "no beginning": lambda path: path.write_bytes(path.read_bytes()[500:]),
}


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Give a directory of its own to everything temporary, and expect it to be empty in the end."""
    directory = tmp_path / "room" / "temporary"
    directory.mkdir(parents=True)
    monkeypatch.setattr("tempfile.tempdir", str(directory))
    yield directory
    assert list(directory.iterdir()) == []
    assert list(directory.parent.iterdir()) == [directory]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_bundle_is_refused_and_nothing_is_left_anywhere(
    desk: Desk, bundle: Path, room: Path, name: str
) -> None:
    HOSTILE[name](bundle)
    before = sorted(desk.directory.parent.rglob("*"))
    said = desk.ask("verify", "--out", "run.zip", "--json")

    assert said.refusal == (2, "DecodingRefused")
    assert desk.verdict("--out", "run.zip").refusal == (2, "DecodingRefused")
    assert sorted(desk.directory.parent.rglob("*")) == before
    assert list(room.iterdir()) == []
    assert not Path("/tmp/escaped").exists()


@pytest.mark.parametrize("limit", ["_MEMBERS", "_BUNDLE_BYTES", "_UNPACKED_BYTES"])
def test_no_bundle_is_larger_than_the_absolute_limits(
    desk: Desk, bundle: Path, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    assert len(members(bundle)) > UNITS
    monkeypatch.setattr(bundles, limit, UNITS)

    assert desk.ask("verify", "--out", "run.zip", "--json").refusal == (2, "DecodingRefused")


@pytest.mark.parametrize(
    "hostile",
    [
        lambda content: content | {"HEAD": b"2 " + b"0" * 64 + b"\n"},
        lambda content: content | {"00000001.json": content["00000001.json"].replace(b"1.0", b"0.5", 1)},
        lambda content: content | {"00000002.json": content["00000001.json"]},
        lambda content: {name: raw for name, raw in content.items() if name != "HEAD"},
        lambda content: {name: raw for name, raw in content.items() if name != "00000000.json"},
        lambda content: content | {max(content): b"another artefact"},
    ],
)
def test_a_bundle_of_the_right_names_and_wrong_bytes_is_an_integrity_error(
    desk: Desk, bundle: Path, room: Path, hostile: Callable[[dict[str, bytes]], dict[str, bytes]]
) -> None:
    pack(bundle, hostile(members(bundle)))
    said = desk.ask("verify", "--out", "run.zip", "--json")

    assert (said.code, said.document["ok"]) == (3, False)
    assert str(room) not in said.document["file"]


def test_a_benign_twin_packed_by_another_tool_is_taken(desk: Desk, bundle: Path, room: Path) -> None:
    head = desk.ask("verify", "--json").document["chain_head"]
    content = members(bundle)
    stream = io.BytesIO(b"a foreign beginning")
    with zipfile.ZipFile(stream, "a") as packed:
        for name in sorted(content, reverse=True):
            packed.writestr(name, content[name])
        packed.comment = b"packed by hand"
    bundle.write_bytes(stream.getvalue())
    said = desk.ask("verify", "--out", "run.zip", "--expect-head", head, "--json")

    assert (said.code, said.document["ok"]) == (0, True)
    assert list(room.iterdir()) == []


def outcome(path: Path) -> str:
    """Return the head of a bundle, or the type of its refusal; everything else is raised."""
    try:
        with opened_log(path) as directory:
            return "".join(verify_log(directory, SystemClock()).hashes[-1:]) or "nothing"
    except EvalError as refusal:
        return type(refusal).__name__


@pytest.fixture
def small_bundle(fresh_desk: Desk) -> tuple[Path, str]:
    """Pack a run of two cases; also return its head."""
    fresh_desk.run()
    head = fresh_desk.ask("export", "latest", "-o", "run.zip", "--json").document["chain_head"]
    return fresh_desk.directory / "run.zip", head


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.data())
def test_any_damage_to_a_bundle_is_refused_by_type_or_changes_nothing(
    small_bundle: tuple[Path, str], data: st.DataObject
) -> None:
    bundle, whole = small_bundle
    raw = bundle.read_bytes()
    damaged = bytearray(raw)
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        del damaged[data.draw(st.integers(0, len(raw) - 1)) :]
    other = bundle.with_name("damaged.zip")
    other.write_bytes(damaged)

    assert outcome(other) in {whole, "DecodingRefused", "ChainTamperDetected", "nothing"}


def test_a_refusal_says_what_is_wrong_with_the_bundle_and_where(desk: Desk, bundle: Path) -> None:
    added("../escaped")(bundle)
    said = desk.ask("verify", "--out", "run.zip")

    assert said.code == DecodingRefused.exit_code
    assert "holds '../escaped', which is not part of a log" in said.err
    assert "where: run.zip" in said.err
    assert desk.ask("promote-verdict", TASK_CLASS, "--tier", "bronze", "--out", "run.zip").code == 2
