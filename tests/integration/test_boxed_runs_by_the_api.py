"""Agents in boxes, measured from Python instead of the command line."""

import asyncio
from collections.abc import Iterator

import pytest

from codegenie.eval.models import BenchRunReport
from codegenie.eval.runner import Runner
from codegenie.eval.suts.spec import SutRequest, open_sut
from tests.support.agent_desk import FIXING, RIGHT, AgentDesk, agent_desk
from tests.support.benches import TASK_CLASS

PYTHON_AGENT = f"""\
from pathlib import Path


def solve(case):
    if case.case_id == "two":
        raise ValueError("no luck")
    Path(case.input_dir, "calc.py").write_text({RIGHT!r})
"""


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch) -> Iterator[AgentDesk]:
    with agent_desk(("one", "two")) as made:
        monkeypatch.chdir(made.directory)
        yield made


def report_on(spec: str) -> BenchRunReport:
    runner = Runner()
    plan = runner.plan(task_class_name=TASK_CLASS)
    return asyncio.run(runner.execute(plan, system_under_test=open_sut(SutRequest(spec), plan)))


def test_a_program_mends_every_case(desk: AgentDesk) -> None:
    report = report_on(desk.script(FIXING))

    assert (report.passed_count, report.sut_boundary, report.sut_network) == (2, "namespace", "none")


def test_a_function_is_judged_by_what_it_changed_and_by_what_it_raised(desk: AgentDesk) -> None:
    (desk.directory / "agent.py").write_text(PYTHON_AGENT, encoding="utf-8")
    report = report_on("python:agent:solve")

    assert (report.passed_count, report.sut_boundary) == (1, "namespace")
    (mode,) = dict(report.per_case)["two"].failure_modes
    assert mode.code == "sut.exception"
    assert mode.detail == "ValueError: no luck (agent.py:6)"
