"""The harness's own systems under test, and the results that others hand in."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from codegenie.eval.errors import BenchCaseDigestMismatch, SutSpecInvalid
from codegenie.eval.models import RunPlan
from codegenie.eval.ports import SutAnswer, SutCase, SutFault
from codegenie.eval.runner import Runner
from codegenie.eval.suts.boxed.python import BoxedPythonSut
from codegenie.eval.suts.builtin import NullSut, OracleSut
from codegenie.eval.suts.python import PythonSut
from codegenie.eval.suts.result_reader import read_result
from codegenie.eval.suts.spec import SutRequest, open_sut
from tests.support.benches import TASK_CLASS, CaseFiles, run_bench, write_bench

CASES = [
    CaseFiles("recorded", files={"solution/harness_output.json": '{"answer": "it is recorded"}'}),
    CaseFiles("laid-over", files={"solution/question.txt": "new\n", "solution/sub/more.txt": "more\n"}),
    CaseFiles("unchanged", files={"solution/question.txt": "what is unchanged?\n"}),
    CaseFiles("without"),
    CaseFiles("not-an-object", files={"solution/harness_output.json": "[]"}),
    CaseFiles("not-json", files={"solution/harness_output.json": "{"}),
    CaseFiles("not-alone", files={"solution/harness_output.json": "{", "solution/question.txt": "x"}),
]


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> RunPlan:
    return plan_of(write_bench(tmp_path_factory.mktemp("own"), cases=CASES))


def plan_of(root: Path) -> RunPlan:
    return Runner().plan(task_class_name=TASK_CLASS, bench_root=root)


def oracle_on(plan: RunPlan, case_id: str) -> SutAnswer | SutFault:
    oracle = open_sut(SutRequest("oracle"), plan)
    assert isinstance(oracle, OracleSut)
    return asyncio.run(oracle.ask(SutCase(case_id, TASK_CLASS, "", 0), 5.0))


def output_of(plan: RunPlan, case_id: str) -> dict[str, Any]:
    answer = oracle_on(plan, case_id)
    assert isinstance(answer, SutAnswer)
    assert answer.cost_usd == 0.0
    found: dict[str, Any] = json.loads(answer.output)
    return found


def test_a_recorded_output_is_taken_as_it_is(plan: RunPlan) -> None:
    assert output_of(plan, "recorded") == {"answer": "it is recorded"}


def test_a_solution_is_laid_over_the_input_and_told_as_a_change(plan: RunPlan) -> None:
    output = output_of(plan, "laid-over")

    assert output["files"] == {"question.txt": "new\n", "sub/more.txt": "more\n"}
    assert output["diff"] == (
        "--- a/question.txt\n+++ b/question.txt\n@@ -1 +1 @@\n-what is laid-over?\n+new\n"
        "--- a/sub/more.txt\n+++ b/sub/more.txt\n@@ -0,0 +1 @@\n+more\n"
    )
    assert (output["exit_code"], output["stdout_tail"]) == (0, "")


def test_a_solution_that_changes_nothing_is_an_empty_change(plan: RunPlan) -> None:
    assert output_of(plan, "unchanged") == {"files": {}, "diff": "", "exit_code": 0, "stdout_tail": ""}


def test_a_recording_beside_other_files_is_a_file_like_them(plan: RunPlan) -> None:
    assert output_of(plan, "not-alone")["files"] == {"harness_output.json": "{", "question.txt": "x"}


@pytest.mark.parametrize(
    ("case_id", "said"),
    [
        ("without", "the case has no solution/"),
        ("not-an-object", "solution: harness_output.json is not a JSON object"),
        ("not-json", "solution: not one JSON document"),
    ],
)
def test_a_case_without_a_usable_solution_is_a_fault(plan: RunPlan, case_id: str, said: str) -> None:
    fault = oracle_on(plan, case_id)

    assert isinstance(fault, SutFault)
    assert fault.code == "sut.exception"
    assert fault.detail.startswith(said)


def test_a_solution_that_is_no_text_is_a_fault(tmp_path: Path) -> None:
    root = write_bench(tmp_path, cases=["one"])
    directory = root / TASK_CLASS
    (directory / "cases" / "one" / "solution").mkdir()
    (directory / "cases" / "one" / "solution" / "image").write_bytes(b"\xff\xfe")
    from codegenie.eval.bench.digest_list import digest_statuses, write_digests
    from codegenie.eval.bench.loading import load_task_class

    task_class = load_task_class(TASK_CLASS, bench_root=root)
    write_digests(task_class, digest_statuses(task_class))
    plan = plan_of(root)

    assert oracle_on(plan, "one") == SutFault("sut.exception", "solution: a file is not UTF-8 text", 0.0)


@pytest.mark.parametrize("change", ["edited", "linked"])
def test_a_case_that_changed_after_the_plan_ends_the_oracle_and_the_run(tmp_path: Path, change: str) -> None:
    plan = plan_of(write_bench(tmp_path, cases=CASES))
    file = plan.task_class.directory / "cases" / "recorded" / "solution" / "harness_output.json"
    file.unlink()
    if change == "linked":
        file.symlink_to("/etc/hostname")
    else:
        file.write_text("{}")

    with pytest.raises(BenchCaseDigestMismatch):
        oracle_on(plan, "recorded")


def test_the_null_system_returns_nothing_for_nothing(tmp_path: Path) -> None:
    report = run_bench(write_bench(tmp_path), NullSut())

    assert report.sut_boundary == "harness"
    assert (report.passed_count, report.total_cost_usd) == (0, 0.0)


@pytest.mark.parametrize(
    "request_",
    [
        SutRequest("nobody"),
        SutRequest(""),
        SutRequest("python:"),
        SutRequest("null", version="1"),
        SutRequest("oracle", pass_names=("PATH",)),
        SutRequest("oracle:x"),
    ],
)
def test_a_spec_that_we_do_not_know_is_refused(plan: RunPlan, request_: SutRequest) -> None:
    with pytest.raises(SutSpecInvalid):
        open_sut(request_, plan)


def test_a_spec_that_we_know_is_opened(
    plan: RunPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "agent.py").write_text("")
    monkeypatch.chdir(tmp_path)

    assert isinstance(open_sut(SutRequest("null"), plan), NullSut)
    plain = SutRequest("python:agent:solve", isolation="subprocess")
    assert isinstance(open_sut(plain, plan), PythonSut)
    assert isinstance(open_sut(SutRequest("python:agent:solve"), plan), BoxedPythonSut)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"[]",
        b"{}",
        b'{"harness_output": {}}',
        b'{"harness_output": {}, "cost_usd": null, "usage": null, "more": 1}',
        b'{"harness_output": [], "cost_usd": null, "usage": null}',
        b'{"harness_output": {}, "cost_usd": NaN, "usage": null}',
        b'{"harness_output": {}, "cost_usd": "1", "usage": null}',
        b'{"harness_output": {}, "cost_usd": 1e308, "usage": null}',
        b'{"harness_output": {"a": 1, "a": 2}, "cost_usd": 0, "usage": null}',
        b'{"harness_output": {"a": 1e999}, "cost_usd": 0, "usage": null}',
        b"\xef\xbb\xbf{}",
    ],
)
def test_bytes_that_are_no_result_are_a_fault_of_the_sut(raw: bytes) -> None:
    fault = read_result(raw)

    assert isinstance(fault, SutFault)
    assert fault.code == "sut.exception"


def test_bytes_that_are_a_result_are_spelled_in_one_way() -> None:
    raw = b'{"usage": {"in": 3}, "cost_usd": -0.0, "harness_output": {"b": "\\u00e9", "a": 1.0}}'

    assert read_result(raw) == SutAnswer('{"a":1.0,"b":"é"}'.encode(), 0.0)
    assert repr(read_result(raw).cost_usd) == "0.0"
