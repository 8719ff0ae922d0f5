"""Every wrong file, flag and value gives its message, its typed error and its exit code, and no traceback.

The rows are in the modules beside this one, by what is wrong. Next to each family stand benign twins,
so that refusing everything is not a pass.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from codegenie.eval.cli import run_command_line
from tests.cli import wrong_cases, wrong_flags, wrong_python_files, wrong_trees, wrong_yaml_files
from tests.cli.refusals import RUN, Refusal
from tests.support.sampling import sampled
from tests.support.stub_benches import CASES, Edit, copy_stub

TABLE = [
    *wrong_python_files.REGISTRATIONS,
    *wrong_python_files.BREAKDOWN_KEYS,
    *wrong_yaml_files.TAXONOMIES,
    *wrong_yaml_files.MANIFESTS,
    *wrong_cases.FIELDS,
    *wrong_cases.SYNTAX,
    *wrong_trees.TREES,
    *wrong_trees.DIRECTORIES,
    *wrong_flags.COMMANDS,
    *wrong_flags.VALUES,
    *wrong_flags.PLACES,
    *wrong_flags.PROJECT_FILES,
    *wrong_flags.VARIABLES,
]
BENIGN = {
    **wrong_python_files.BENIGN,
    **wrong_yaml_files.BENIGN,
    **wrong_cases.BENIGN,
    **wrong_trees.BENIGN,
}
# One of each family, each with an error type of its own.
IN_A_PROCESS = [
    wrong_python_files.REGISTRATIONS[0],
    wrong_python_files.BREAKDOWN_KEYS[0],
    wrong_yaml_files.TAXONOMIES[0],
    wrong_yaml_files.MANIFESTS[1],
    wrong_yaml_files.MANIFESTS[-1],
    wrong_trees.TREES[0],
    wrong_flags.VALUES[0],
]


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand in a directory whose `bench/` holds a fresh copy of the stub."""
    monkeypatch.chdir(tmp_path)
    return copy_stub(tmp_path / "bench")


def refused_in_words(said: str, row: Refusal) -> bool:
    """Say whether the plain form names the problem, on lines that cannot steer a terminal."""
    lines = said.removesuffix("\n").split("\n")
    clean = all(line.isprintable() for line in lines)
    return clean and lines[0].startswith("codegenie: ") and row.says in lines[0] and len(lines) <= 3


@pytest.mark.parametrize("row", TABLE, ids=str)
def test_what_is_wrong_is_refused(
    row: Refusal, bench: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    row.edit(bench)
    for name, value in row.environment:
        monkeypatch.setenv(name, value)

    code = run_command_line([*row.argv, "--json"])
    said = capsys.readouterr()
    document = json.loads(said.out)
    error = document["error"]

    assert (code, error["type"]) == (row.code, row.error), error
    assert document.keys() == {"schema", "error"}
    assert document["schema"] == "codegenie.eval.refusal/1"
    assert error.keys() == {"type", "message", "where", "hint"}
    assert row.says in error["message"]
    assert all(text is None or text.isprintable() for text in error.values())
    assert said.err == ""


FIRST_OF_ITS_ERROR = {row.error: row for row in reversed(TABLE)}


@pytest.mark.parametrize("row", sampled(TABLE, lambda row: FIRST_OF_ITS_ERROR[row.error] is row))
def test_what_is_wrong_is_refused_in_words(
    row: Refusal, bench: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    row.edit(bench)
    for name, value in row.environment:
        monkeypatch.setenv(name, value)

    assert run_command_line(row.argv) == row.code
    plain = capsys.readouterr()
    assert plain.out == ""
    assert refused_in_words(plain.err, row), plain.err


def test_the_table_is_as_long_as_it_should_be_and_says_nothing_twice() -> None:
    assert len(TABLE) >= 250
    assert len({row.sentence for row in TABLE}) == len(TABLE)
    assert {row.code for row in TABLE} == {2, 3}


@pytest.mark.parametrize("edit", BENIGN.values(), ids=BENIGN)
def test_what_only_looks_wrong_is_run(edit: Edit, bench: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edit(bench)

    code = run_command_line([*RUN, "--json"])
    report = json.loads(capsys.readouterr().out)["report"]

    assert code == 0
    assert [case_id for case_id, _ in report["per_case"]] == list(CASES)
    assert report["scored_count"] == len(CASES)


@pytest.mark.parametrize("row", IN_A_PROCESS, ids=str)
def test_a_real_process_refuses_as_well(row: Refusal, bench: Path) -> None:
    row.edit(bench)

    done = subprocess.run(
        [sys.executable, "-m", "codegenie", *row.argv, "--json"], capture_output=True, text=True, check=False
    )

    assert (done.returncode, json.loads(done.stdout)["error"]["type"]) == (row.code, row.error)
    assert done.stderr == ""


@pytest.mark.parametrize(
    "flags",
    [
        "--trials 2 --concurrency 256 --timeout 0.5 --max-cost-usd 0 --isolation subprocess",
        "--sut oracle --cases adds_* --cases off_by_one",
        "--sut python:agent:answer --sut-version 1.0 --sut-env PATH --sut-isolation subprocess",
        "--bench-root ./bench",
    ],
)
def test_good_flags_are_taken(flags: str, bench: Path, capsys: pytest.CaptureFixture[str]) -> None:
    agent = "async def answer(case: object) -> dict[str, str]:\n    return {}\n"
    (bench.parents[1] / "agent.py").write_text(agent, encoding="utf-8")

    assert run_command_line([*RUN, *flags.split(), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["report"]["complete"]


@pytest.mark.parametrize("count", [40, 151, 400])
def test_many_variables_for_an_agent_are_taken_or_refused_in_words(
    count: int, bench: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = "async def answer(case: object) -> dict[str, str]:\n    return {}\n"
    (bench.parents[1] / "agent.py").write_text(agent, encoding="utf-8")
    names = [f"V{number}" for number in range(count)]
    for name in names:
        monkeypatch.setenv(name, "1")
    flags = [flag for name in names for flag in ("--sut-env", name)]

    plainly = ("--sut", "python:agent:answer", "--sut-isolation", "subprocess")
    code = run_command_line([*RUN, *plainly, *flags, "--json"])

    said = json.loads(capsys.readouterr().out)
    if code:
        assert (code, said["error"]["type"]) == (2, "SutSpecInvalid")
        assert f"{count} variables" in said["error"]["message"]
    else:
        assert said["report"]["sut"]["spec"].count("--sut-env") == count
    assert (code == 0) == (count < 151)


@pytest.mark.usefixtures("bench")
@pytest.mark.parametrize("count", [3, 400])
def test_many_globs_are_taken_or_refused_in_words(count: int, capsys: pytest.CaptureFixture[str]) -> None:
    globs = [flag for _ in range(count) for flag in ("--cases", "[a]dds_up")]

    code = run_command_line([*RUN, *globs, "--json"])

    said = json.loads(capsys.readouterr().out)
    assert code in {0, 2}
    assert "error" not in said or said["error"]["type"] != "EvalError"
