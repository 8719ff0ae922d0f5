"""What of an agent goes into its identity: its syntax tree, and fingerprints of its variables."""

from pathlib import Path

import pytest

from codegenie.eval.errors import HarnessFailure, SutSpecInvalid
from codegenie.eval.suts.fingerprints import log_salt, syntax_digest, variable_fingerprint

AGENT = 'def solve(case):\n    text = "it is "\n    return {"answer": text + case.case_id}\n'


@pytest.mark.parametrize(
    "other",
    [
        AGENT + "# try 2\n",
        "# -*- coding: utf-8 -*-\n" + AGENT,
        '"""Try 2."""\n\n' + AGENT,
        AGENT.replace("    text", '    """Try 2."""\n    text', 1),
        AGENT.replace("    text", "    'try 2'\n    17\n    text", 1),
        AGENT.replace("    ", "        "),
        AGENT.replace('"it is "', "'it ' u'is '"),
        AGENT.replace("text + case.case_id", "((text) + (case.case_id))"),
        AGENT.replace("\n", "\r\n"),
    ],
)
def test_comments_layout_and_docstrings_make_no_other_agent(other: str) -> None:
    assert syntax_digest(other.encode()) == syntax_digest(AGENT.encode())


@pytest.mark.parametrize(
    "other",
    [
        AGENT.replace("it is", "it was"),
        AGENT.replace("text +", "text *"),
        AGENT.replace("case_id", "trial"),
        AGENT.replace("def", "async def"),
        AGENT + "x = 1\n",
        AGENT + "x = 1.0\n",
        AGENT + "x = True\n",
        AGENT + "x = b'1'\n",
        AGENT + "x = '1'\n",
        AGENT + "x = [1, None]\n",
        AGENT + "x = [None, 1]\n",
        AGENT + "x = [[1], 2]\n",
        AGENT + "x = [[1, 2]]\n",
    ],
)
def test_what_a_program_says_makes_another_agent(other: str) -> None:
    others = {syntax_digest(text.encode()) for text in (AGENT, AGENT + "x = 2\n")}

    assert syntax_digest(other.encode()) not in others | {None}


def test_what_no_parser_takes_has_no_tree() -> None:
    for source in (b"def solve(:\n", b"x = '\0'\n", b"\xff\xfe", b"(" * 100_000):
        assert syntax_digest(source) is None


def test_a_deep_tree_and_a_long_number_are_read() -> None:
    deep = ("x = " + "1 + " * 900 + "1\n").encode()
    long = b"x = 0x" + b"f" * 10_000 + b"\n"

    assert None not in {syntax_digest(deep), syntax_digest(long)}


def test_a_module_that_only_its_bytes_could_tell_apart_is_refused() -> None:
    for source in (b"#" * (5 << 20), ("x = " + "1 + " * 50_000 + "1\n").encode()):
        with pytest.raises(SutSpecInvalid, match="too long or nested too deep"):
            syntax_digest(source)


def test_a_salt_is_made_once_for_its_owner_alone(tmp_path: Path) -> None:
    log = tmp_path / "a" / "log"
    assert log_salt(log, create=False) is None
    salt = log_salt(log, create=True)

    assert salt is not None
    assert log_salt(log, create=True) == log_salt(log, create=False) == salt
    assert [path.name for path in log.iterdir()] == ["salt"]
    assert (len(salt), (log / "salt").stat().st_mode & 0o777) == (32, 0o600)


def test_a_salt_that_is_cut_or_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "salt").write_bytes(b"short")
    with pytest.raises(HarnessFailure, match="is not whole"):
        log_salt(tmp_path, create=True)
    (tmp_path / "salt").unlink()
    (tmp_path / "salt").symlink_to("elsewhere")
    with pytest.raises(HarnessFailure, match="cannot keep the salt"):
        log_salt(tmp_path, create=True)


def test_a_fingerprint_has_128_bits_and_depends_on_salt_name_and_value() -> None:
    prints = {
        variable_fingerprint(salt, name, value)
        for salt in (b"1" * 32, b"2" * 32)
        for name in ("MODEL", "KEY")
        for value in ("small", "large")
    }

    assert len(prints) == 8
    assert {len(text) for text in prints} == {32}
