"""`demo`: a run, a verdict, a case and a log that were touched, on one or two screens and without a trace."""

from pathlib import Path

from tests.support.commands import call, environment, eval_argv
from tests.support.working_directory import Said


def demonstrated(directory: Path, *form: str) -> Said:
    """Run the demo with a directory for everything temporary, and expect it to be empty in the end."""
    (directory / "tmp").mkdir()
    done = call(eval_argv("demo", *form), directory, environment(TMPDIR=str(directory / "tmp")))
    assert list(directory.rglob("*")) == [directory / "tmp"]
    return Said(done.returncode, done.stdout, done.stderr)


def test_the_demo_shows_runs_verdicts_and_both_refusals_on_two_screens(tmp_path: Path) -> None:
    said = demonstrated(tmp_path)
    lines = said.out.splitlines()
    first, second = [line.strip() for line in lines if line.strip().startswith("exit ")]

    assert (said.code, said.err) == (0, "")
    assert len(lines) <= 60
    assert [line[:2] for line in lines if line[:1].isdigit()] == ["1.", "2.", "3.", "4."]
    assert sum(line.startswith("bronze           insufficient") for line in lines) == 2
    assert "  no_agent: oracle is part of the harness: its runs test the bench, not an agent" in lines
    assert first.startswith("exit 3: case 'requests-2-31-0' has changed: its digest is ")
    assert second == "exit 3: 00000001.json fails verification: mean_score is 0.0, but the answers give 1.0"


def test_the_demo_says_the_same_as_one_document(tmp_path: Path) -> None:
    said = demonstrated(tmp_path, "--json")
    document = said.document

    assert said.code == 0
    assert document["schema"] == "codegenie.eval.demo/1"
    assert (document["oracle"]["units_passed"], document["null"]["units_passed"]) == (8, 2)
    oracle = document["verdicts"]["oracle"]
    assert (oracle["verdict"], len(oracle["reasons"])) == ("insufficient", 1)
    assert oracle["reasons"][0].startswith("no_agent: ")
    assert document["verdicts"]["null"]["verdict"] == "insufficient"
    assert document["refused"]["type"] == "BenchCaseDigestMismatch"
    assert document["refused"]["case_id"] == "requests-2-31-0"
    assert document["refused_record"]["type"] == "ChainTamperDetected"
    assert document["refused_record"]["file"] == "00000001.json"
    assert {document[name]["exit_code"] for name in ("refused", "refused_record")} == {3}


def test_what_comes_next_can_be_typed_where_there_is_no_bench(tmp_path: Path) -> None:
    (tmp_path / "agents.py").write_text("def idle(case):\n    return {}\n", encoding="utf-8")
    said = call(eval_argv("demo"), tmp_path).stdout.rpartition("Next: codegenie eval ")[2]
    words = said.replace("your_module:your_agent", "agents:idle").split()

    assert call(eval_argv(*words, "--quiet"), tmp_path).returncode == 0
