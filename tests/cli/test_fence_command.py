"""`codegenie eval fence`: what it prints in each form, and how it ends."""

import json
import shutil
import stat
from pathlib import Path
from typing import Any

import pytest

from codegenie.eval.cli import run_command_line
from codegenie.eval.fence import RULES
from tests.support.benches import CaseFiles, write_bench
from tests.support.commands import answered, call, environment, eval_argv
from tests.support.stub_benches import CASE, NAME, appended, copy_stub, digested, replaced, written

Capture = pytest.CaptureFixture[str]
FIXTURES = Path(__file__).parents[1] / "fixtures" / "bench"
ANSWER = f"cases/{CASE}/expected/answer.txt"


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return copy_stub(tmp_path / "bench")


def fence(*arguments: str) -> int:
    return run_command_line(["eval", "fence", *arguments])


def document(capsys: Capture) -> dict[str, Any]:
    said = capsys.readouterr()
    assert said.err == ""
    found: dict[str, Any] = json.loads(said.out)
    return found


def test_a_clean_bench_is_said_to_be_clean(bench: Path, capsys: Capture) -> None:
    assert fence() == 0
    assert capsys.readouterr().out == "clean: 1 task class, 3 cases\n"
    assert fence(str(bench), "--json") == 0
    assert document(capsys) == {
        "schema": "codegenie.eval.fence/1",
        "findings": [],
        "fixed": [],
        "task_classes": 1,
        "cases": 3,
    }


def test_a_finding_ends_with_one_and_a_line_that_says_what_to_do(bench: Path, capsys: Capture) -> None:
    appended(ANSWER, "\n")(bench)

    assert fence("bench") == 1
    place, advice, total = capsys.readouterr().out.splitlines()
    assert place.startswith(f"bench/{NAME}/cases/digests.yaml:1: error F061: case '{CASE}' has changed")
    assert advice.startswith("    next: look at what changed")
    assert total == "1 error, 0 warnings: 1 task class, 3 cases"


def test_warnings_alone_end_with_zero(bench: Path, capsys: Capture) -> None:
    (bench / f"cases/{CASE}/input/conftest.py").touch()
    digested()(bench)

    assert fence() == 0
    assert "warning F005" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["gone"], "there is no gone"),
        (["--explain", "F999"], "there is no rule 'F999'"),
        (["--explain", "f001"], "there is no rule"),
        (["--format", "xml"], "xml"),
        (["--json", "--format", "sarif"], "exclude each other"),
    ],
)
def test_what_cannot_be_done_ends_with_two(
    arguments: list[str], says: str, bench: Path, capsys: Capture
) -> None:
    assert bench.is_dir()
    assert fence(*arguments) == 2
    said = capsys.readouterr()
    assert says in said.out + said.err


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_is_explained(rule: str, capsys: Capture) -> None:
    assert fence("--explain", rule) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"{rule} ({RULES[rule].severity}): {RULES[rule].title}\n")
    assert RULES[rule].why in text
    assert RULES[rule].do in text

    assert fence("--explain", rule, "--json") == 0
    explained = document(capsys)
    assert explained.pop("schema") == "codegenie.eval.rule/1"
    assert explained.keys() == {"id", "title", "why", "do", "severity", "fixable"}


def test_each_form_says_the_same(bench: Path, capsys: Capture) -> None:
    appended(ANSWER, "\n")(bench)
    (bench / "conftest.py").touch()
    assert fence("--json") == 1
    by_json = [finding["rule"] for finding in document(capsys)["findings"]]
    assert fence("--format", "json") == 1
    assert [finding["rule"] for finding in document(capsys)["findings"]] == by_json
    assert fence("--format", "sarif") == 1
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    assert [result["ruleId"] for result in run["results"]] == by_json
    assert fence("--format", "github") == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("title=")[1][:4] for line in lines if line.startswith("::error ")] == by_json
    assert by_json == ["F061", "F004"]


def test_fixing_says_what_was_fixed_and_what_is_left(bench: Path, capsys: Capture) -> None:
    appended(ANSWER, "\n")(bench)
    (bench / "rubric.py").chmod(0o755)
    (bench / "conftest.py").touch()

    assert fence("--fix") == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"fixed  bench/{NAME}/rubric.py: is no longer executable"
    assert lines[1].startswith(f"fixed  bench/{NAME}/cases/digests.yaml: {CASE}: ")
    assert "F004" in lines[2]
    assert len(lines) == 5

    (bench / "conftest.py").unlink()
    assert fence("--fix", "--json") == 0
    assert document(capsys)["fixed"] == []


def test_no_setting_of_a_bench_counts_for_whoever_stands_in_it(
    bench: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    copy_stub(tmp_path / "clean")
    written("pyproject.toml", f'[tool.codegenie.eval]\nbench_root = "{tmp_path}/clean"\nno_such = 1\n')(bench)
    monkeypatch.chdir(bench)

    assert fence(".", "--json") == 1
    assert [finding["rule"] for finding in document(capsys)["findings"]] == ["F004"]
    assert fence() == 2
    assert "lies in a task class" in capsys.readouterr().err


def test_without_a_path_the_configured_roots_are_looked_at(
    bench: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    shutil.move(bench.parent, tmp_path / "elsewhere")
    assert fence() == 2
    (tmp_path / "pyproject.toml").write_text(
        '[tool.codegenie.eval]\nbench_root = "elsewhere"\n', encoding="utf-8"
    )
    assert fence() == 0
    monkeypatch.setenv("CODEGENIE_EVAL_BENCH_ROOT", "gone")
    assert fence() == 2
    monkeypatch.setenv("CODEGENIE_EVAL_BENCH_ROOT", f"elsewhere:{tmp_path}/elsewhere")
    assert fence() == 0
    assert "1 task class," in capsys.readouterr().out


def test_nothing_of_a_bench_runs(bench: Path, tmp_path: Path) -> None:
    trap = f"open({str(tmp_path / 'sprung')!r}, 'w')\n"
    for name in ("registration.py", "breakdown_keys.py", "rubric.py"):
        appended(name, trap)(bench)
    for name in ("conftest.py", "sitecustomize.py", "__init__.py", "json.py", "rubric_lib/__init__.py"):
        (bench / name).parent.mkdir(exist_ok=True)
        written(name, trap)(bench)
    written("x.pth", f"import os; {trap}")(bench)

    done = call(eval_argv("fence", ".", "--json"), bench, environment(PYTHONSAFEPATH="1"))

    assert done.returncode == 1
    assert len(answered(done)["findings"]) >= 7
    assert not (tmp_path / "sprung").exists()
    assert [path.name for path in bench.rglob("*.pyc")] == []


def test_the_benches_that_we_ship_are_clean(capsys: Capture) -> None:
    root = FIXTURES.parents[2]

    assert fence(str(root / "bench")) == 0
    assert fence(str(FIXTURES / NAME)) == 0
    assert capsys.readouterr().out == "clean: 1 task class, 12 cases\nclean: 1 task class, 3 cases\n"


# The hostile fixtures of the story, and the same two made here, so that neither can drift alone.

SCENARIOS = ("env_read_attempt", "rubric_timeout", "banned_breakdown_key", "poisoned_case", "valid_baseline")
HOSTILE_RUBRIC = 'import json, os, sys\nprint(json.dumps({"breakdown": {"llm_confidence": 0.9}}))\n'


def made_hostile(root: Path) -> Path:
    name = "adversarial-task-class"
    bench = write_bench(root, HOSTILE_RUBRIC, [CaseFiles(case) for case in SCENARIOS], name=name) / name
    replaced("registration.py", '{"bronze": 1}', "{}")(bench)
    return bench


def test_a_hostile_class_has_one_finding_its_stale_digest(tmp_path: Path, capsys: Capture) -> None:
    bench = made_hostile(tmp_path)
    appended("cases/poisoned_case/case.toml", "# edited\n")(bench)

    assert fence(str(bench), "--json") == 1
    assert [finding["rule"] for finding in document(capsys)["findings"]] == ["F061"]


def test_a_malformed_taxonomy_has_one_finding_for_each_entry(tmp_path: Path, capsys: Capture) -> None:
    bench = made_hostile(tmp_path)
    modes = "own.one: {severity: critical, description: d}\nown.two: {severity: warn}\n"
    appended("failure_modes.yaml", modes)(bench)

    assert fence(str(bench), "--json") == 1
    assert [finding["rule"] for finding in document(capsys)["findings"]] == ["F030", "F030"]


@pytest.mark.parametrize(
    ("name", "rules", "file", "says"),
    [
        ("adversarial-task-class", ["F061"], "cases/digests.yaml", "poisoned_case"),
        ("adversarial-task-class-malformed-yaml", ["F030", "F030"], "failure_modes.yaml", "'critical'"),
    ],
)
def test_the_committed_hostile_fixtures_have_exactly_their_findings(
    name: str, rules: list[str], file: str, says: str, capsys: Capture
) -> None:
    assert fence(str(FIXTURES / name), "--json") == 1
    findings = document(capsys)["findings"]

    assert [finding["rule"] for finding in findings] == rules
    assert all(finding["path"].endswith(f"{name}/{file}") and finding["line"] for finding in findings)
    assert any(says in finding["message"] for finding in findings)


def test_modes_of_files_are_looked_at_and_not_changed_without_being_asked(
    bench: Path, capsys: Capture
) -> None:
    (bench / "rubric.py").chmod(0o755)

    assert fence() == 1
    assert "F006" in capsys.readouterr().out
    assert stat.S_IMODE((bench / "rubric.py").stat().st_mode) == 0o755
