"""Runs of benches whose cases have steps: from the agent to verdict, store, log and re-score."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from codegenie.eval.bench.copies import CaseSnapshots
from codegenie.eval.bench.loading import load_cases, load_task_class
from codegenie.eval.errors import BenchCaseLoadError, IsolationUnavailable
from codegenie.eval.execution_ports import Judged
from codegenie.eval.log.reading import VerifiedLog
from codegenie.eval.models import BenchRunReport, RunOptions
from codegenie.eval.ports import SutCase
from codegenie.eval.runner import Runner
from codegenie.eval.system.clock import SystemClock
from codegenie.eval.system.packed_tree import measure
from codegenie.eval.trial import rubric_request
from codegenie.eval.verification import Verification
from tests.support.benches import TASK_CLASS, CaseFiles, write_bench
from tests.support.sampling import one_worker

pytestmark = one_worker(__name__)

RUBRIC = """\
from codegenie_rubric import emit, read_case, returned

request = read_case()
with open("execute/calls.json", encoding="utf-8") as file:
    assert "add" in file.read()
replies = request.executions["values"]["replies"]
right = [returned(reply, value) for reply, value in zip(replies, (5, 7))]
emit(passed=all(right), score=sum(right) / 2)
"""
# Its score is the number that the first call returned, so another number is another score.
BY_NUMBER = """\
from codegenie_rubric import emit, read_case

number = int(read_case().executions["values"]["replies"][0]["value"]["int"])
emit(passed=False, score=number % 1_000_003 / 1_000_003)
"""
FIELDS = """\
case_id = "one"
task_class = "built-class"
disposition = "positive"
difficulty = "easy"
source = "curated"
curation_class = "held-out"
added_at = 2026-11-15
last_validated_at = 2026-11-15
"""
STEP = """
[[execute]]
name = "values"
kind = "python-calls"
module = "calc"
calls = "execute/calls.json"
"""
CALLS = json.dumps([{"attribute": "add", "args": [{"int": "2"}, {"int": str(other)}]} for other in (3, 5)])


def bench_with_steps(root: Path, step: str = STEP, asked: str | None = CALLS, rubric: str = RUBRIC) -> Path:
    files = {
        "case.toml": FIELDS + step,
        "input/calc.py": "",
        "solution/calc.py": "def add(a, b):\n    return a + b\n",
    }
    if asked is not None:
        files["execute/calls.json"] = asked
    return write_bench(root / "bench", rubric, [CaseFiles("one", files)])


class Agent:
    """Returns a file, and counts how often it was asked."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.asked = 0
        self.saw: list[str] = []

    async def __call__(self, case: SutCase) -> dict[str, Any]:
        self.asked += 1
        self.saw = sorted(os.listdir(case.input_dir))
        await asyncio.sleep(0)
        return {"files": {"calc.py": self.source}}


def run(root: Path, agent: Agent, **options: Any) -> BenchRunReport:  # noqa: ANN401 - any field of RunOptions
    runner = Runner()
    plan = runner.plan(
        task_class_name=TASK_CLASS,
        bench_root=root / "bench",
        out_dir=root / "out",
        options=RunOptions(**{"isolation": "namespace", **options}),
    )
    return asyncio.run(runner.execute(plan, system_under_test=agent))


def verified(root: Path) -> Verification:
    verification = Verification(VerifiedLog(root / "out"))
    verification.check(lambda _name: root / "bench", SystemClock(), None)
    return verification


RIGHT = "def add(a, b):\n    return a + b\n"
HALF = "def add(a, b):\n    return 5\n"
# In a fresh box every process has the same number, so only chance differs from run to run.
WAVERING = "import os\n\n\ndef add(a, b):\n    return 5 if b == 3 else int.from_bytes(os.urandom(8), 'big')\n"


def test_the_rubric_judges_what_the_steps_returned(tmp_path: Path) -> None:
    bench_with_steps(tmp_path)

    right, half = run(tmp_path, Agent(RIGHT)), run(tmp_path, Agent(HALF))

    assert (dict(right.per_case)["one"].score, dict(half.per_case)["one"].score) == (1.0, 0.5)


def test_the_files_of_steps_are_shown_to_the_rubric_and_never_to_an_agent(tmp_path: Path) -> None:
    bench_with_steps(tmp_path)
    agent = Agent(RIGHT)

    run(tmp_path, agent)

    task_class = load_task_class(TASK_CLASS, bench_root=tmp_path / "bench")
    (case,), _ = load_cases(task_class, lambda _case_id: True)
    copies = CaseSnapshots(task_class, tmp_path)
    assert sorted(copies.for_execution(case)) == ["execute/calls.json", "input/calc.py", "input/question.txt"]
    with copies.for_rubric(case) as room:
        assert (room / "execute/calls.json").is_file()
    with copies.parcel_for_sut(case) as parcel:
        assert measure(parcel)[0] == 2
    assert agent.saw == ["calc.py", "question.txt"]


def test_a_case_without_steps_gets_the_request_that_it_always_got(tmp_path: Path) -> None:
    write_bench(tmp_path / "bench")
    task_class = load_task_class(TASK_CLASS, bench_root=tmp_path / "bench")
    (case,), _ = load_cases(task_class, lambda _case_id: True)

    request = json.loads(rubric_request(case, Judged(b"{}")))

    assert sorted(request) == ["case", "expected_dir", "harness_output", "input_dir", "protocol"]
    assert "execute" not in request["case"]
    assert request["protocol"] == 1
    copies = CaseSnapshots(task_class, tmp_path)
    with copies.for_rubric(case) as room:
        assert not (room / "execute").exists()


def test_what_came_of_the_steps_is_reused_with_the_output_it_belongs_to(tmp_path: Path) -> None:
    bench_with_steps(tmp_path)
    cached = {"cache_dir": tmp_path / "cache"}

    first = run(tmp_path, Agent(WAVERING), **cached)
    again = run(tmp_path, Agent(WAVERING), **cached)
    run(tmp_path, Agent(RIGHT), **cached)

    # Executed twice, the second call would have returned another number, and the artefacts would differ.
    finished = [
        verified(tmp_path).log.finished(entry) for entry in verified(tmp_path).log.history.runs.values()
    ]
    kept = [trial.artifacts["executions"] for one in finished for trial in one.trials]
    assert dict(first.per_case)["one"].score == dict(again.per_case)["one"].score == 0.5
    assert kept[0] == kept[1] != kept[2]


def test_code_that_behaves_differently_is_not_held_against_the_rubric(tmp_path: Path) -> None:
    bench_with_steps(tmp_path, rubric=BY_NUMBER)
    agent = Agent("import os\n\n\ndef add(a, b):\n    return int.from_bytes(os.urandom(8), 'big')\n")

    reports = [run(tmp_path, agent, cache_dir=tmp_path / "cache", fresh=True) for _ in range(2)]

    scores = [dict(each.per_case)["one"] for each in reports]
    assert scores[0].score != scores[1].score
    assert not any(score.failure_modes for score in scores)


def test_a_rescore_judges_what_is_stored_and_re_execute_makes_it_anew(tmp_path: Path) -> None:
    bench_with_steps(tmp_path)
    run(tmp_path, Agent(RIGHT))
    log = verified(tmp_path).log
    (entry,) = log.history.runs.values()
    (trial,) = log.finished(entry).trials
    kept = tmp_path / "out/artifacts" / trial.artifacts["executions"][:2] / trial.artifacts["executions"]

    stored, anew = verified(tmp_path), verified(tmp_path)
    asyncio.run(stored.rescore("namespace"))
    asyncio.run(anew.rescore("namespace", execute=True))
    kept.unlink()
    without, made = verified(tmp_path), verified(tmp_path)
    asyncio.run(without.rescore("namespace"))
    asyncio.run(made.rescore("namespace", execute=True))

    assert [(each.rescored, each.not_rescored) for each in (stored, anew, without, made)] == [
        (1, 0),
        (1, 0),
        (0, 1),
        (1, 0),
    ]
    assert not any(each.differences for each in (stored, anew, without, made))


def test_re_execute_notices_code_that_behaves_differently_each_time(tmp_path: Path) -> None:
    bench_with_steps(tmp_path, rubric=BY_NUMBER)
    run(tmp_path, Agent("import os\n\n\ndef add(a, b):\n    return int.from_bytes(os.urandom(8), 'big')\n"))
    stored, anew = verified(tmp_path), verified(tmp_path)

    asyncio.run(stored.rescore("namespace"))
    asyncio.run(anew.rescore("namespace", execute=True))

    assert stored.differences == []
    assert [difference.kind for _, difference in anew.differences] == ["nondeterministic"]


def test_unconfined_execution_is_refused_before_an_agent_is_asked_unless_it_is_asked_for(
    tmp_path: Path,
) -> None:
    bench_with_steps(tmp_path)
    agent = Agent(RIGHT)

    with pytest.raises(IsolationUnavailable, match="subprocess") as caught:
        run(tmp_path, agent, isolation="subprocess")
    assert "--sut-isolation subprocess" in (caught.value.hint or "")
    assert agent.asked == 0

    report = run(tmp_path, agent, isolation="subprocess", sut_isolation="subprocess")
    assert dict(report.per_case)["one"].score == 1.0
    with pytest.raises(IsolationUnavailable):
        asyncio.run(verified(tmp_path).rescore("subprocess", execute=True))


@pytest.mark.parametrize(
    ("step", "asked", "says"),
    [
        (STEP, None, "execute/calls.json, which is missing"),
        (STEP, "{}", "not a list of calls"),
        (STEP, '[{"attribute": "add", "args": [5]}]', "call 1: a value is neither"),
        (STEP, '[{"attribute": "add()", "args": []}]', "call 1: attribute"),
        (STEP, '[{"attribute": "add", "args": [], "expected": 5}]', "call 1: it is not"),
        (STEP, '[{"attribute": "add", "args": [{"object": "a.B"}]}]', "call 1: an argument cannot be"),
        (STEP + STEP, CALLS, "two steps have the same name"),
        (STEP.replace("execute/calls", "expected/calls"), CALLS, "below execute/"),
        (STEP + "weight = 1\n", CALLS, "weight"),
        (STEP.replace('"calc"', '"../calc"'), CALLS, "execute.0.python-calls.module"),
    ],
)
def test_a_step_that_cannot_be_executed_is_refused_before_the_run(
    tmp_path: Path, step: str, asked: str | None, says: str
) -> None:
    bench_with_steps(tmp_path, step, asked)

    with pytest.raises(BenchCaseLoadError) as caught:
        Runner().plan(task_class_name=TASK_CLASS, bench_root=tmp_path / "bench", out_dir=tmp_path / "out")

    assert says in str(caught.value)


def test_the_line_of_a_wrong_step_is_named(tmp_path: Path) -> None:
    wrong = STEP.replace('"values"', '"more"') + "weight = 1\n"
    bench_with_steps(tmp_path, STEP + wrong)

    with pytest.raises(BenchCaseLoadError) as caught:
        Runner().plan(task_class_name=TASK_CLASS, bench_root=tmp_path / "bench", out_dir=tmp_path / "out")

    second = (FIELDS + STEP).count("\n") + 2
    assert (caught.value.where or "").endswith(f"case.toml:{second}")
