"""Makes real audit logs for tests, and forges them: records changed and chained anew with our own hashes."""

import asyncio
import json
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from blake3 import blake3

from codegenie.eval.aggregation import combine_trials, summarise
from codegenie.eval.canonical import canonical_json
from codegenie.eval.evidence import TrialEvidence, score_of
from codegenie.eval.isolation_proof import REQUIRED_PROBES
from codegenie.eval.log.chain import Link, record_name
from codegenie.eval.log.disk import HEAD, AuditLog
from codegenie.eval.log.open_run import RecordedRun
from codegenie.eval.log.reading import VerifiedLog, verify_log
from codegenie.eval.log.records import ExamFinished, RunStarted
from codegenie.eval.models import IsolationClass, RunOptions, TrialScore
from codegenie.eval.ports import SutCase, SutRunner, SystemUnderTest
from codegenie.eval.runner import Runner
from codegenie.eval.stopping import Stop
from codegenie.eval.system.clock import SystemClock
from tests.support.benches import ECHO_RUBRIC, TASK_CLASS, write_bench

Edit = Callable[[dict[str, Any]], object]

VERDICTS: Mapping[str, dict[str, Any]] = {
    "blocked": {
        "passed": True,
        "score": 0.875,
        "breakdown": {"accuracy": 0.5},
        "failure_modes": [{"code": "answer.wrong", "severity": "info", "detail": "it is not that"}],
    },
    "passed": {"passed": True, "score": 0.75, "breakdown": {"accuracy": 0.5}, "failure_modes": []},
    "sloppy": {
        "passed": True,
        "score": 0.5,
        "breakdown": {"style.line_length": 0.25},
        "failure_modes": [{"code": "answer.sloppy", "severity": "warn", "detail": "long lines"}],
    },
}
"""What the agent of these tests makes the echoing rubric say of each case."""


async def candid(case: SutCase) -> dict[str, Any]:
    """Answer with the verdict; the case that is not in the list fails."""
    await asyncio.sleep(0)
    return VERDICTS[case.case_id]


def record_run(
    root: Path,
    out_dir: Path,
    sut: SystemUnderTest | SutRunner = candid,
    *,
    runner: Runner | None = None,
    stop: Stop | None = None,
    **options: Any,  # noqa: ANN401 - any field of RunOptions
) -> RecordedRun:
    """Run the bench that lies in `root` and record it in `out_dir`."""
    runner = runner or Runner()
    plan = runner.plan(
        task_class_name=TASK_CLASS,
        bench_root=root,
        out_dir=out_dir,
        options=RunOptions(**{"isolation": "subprocess", **options}),
    )
    return asyncio.run(runner.record(plan, system_under_test=sut, stop=stop))


class StopAfter:
    """Asks a run to stop once so many trials have their score."""

    def __init__(self, trials: int) -> None:
        self.stop = Stop()
        self._left = trials

    def finished(self, _evidence: TrialEvidence, _score: TrialScore) -> None:
        """Count a trial."""
        self._left -= 1
        if not self._left:
            self.stop.everything("the test stops it")


def stopped_run(root: Path, out_dir: Path, after: int, **options: Any) -> RecordedRun:  # noqa: ANN401
    """Leave a run behind that was stopped after so many trials, with the log and journal of a dead one."""
    watch = StopAfter(after)
    runner = Runner(progress=watch)
    return record_run(root, out_dir, runner=runner, stop=watch.stop, concurrency=1, **options)


def build_log(directory: Path) -> Path:
    """Record three runs, one of them resumed, and an exam; returns the directory of the log."""
    root = write_bench(directory / "bench", ECHO_RUBRIC, [*VERDICTS, "unanswered"])
    out_dir = directory / "runs"
    record_run(root, out_dir)
    stopped_run(root, out_dir, 3, cache_dir=directory / "cache", trials=2)
    record_run(root, out_dir, cache_dir=directory / "cache", trials=2)
    exam = ExamFinished(task_class=TASK_CLASS, case_set_digest="0" * 64, rubric_digest="1" * 64, passed=True)
    AuditLog(out_dir, SystemClock()).append(exam, "exam-1")
    record_run(root, out_dir, concurrency=1)
    return out_dir


def verified(log: Path) -> VerifiedLog:
    """Verify everything in a log."""
    return verify_log(log, SystemClock(), bounds=True)


def record_files(log: Path) -> list[Path]:
    """Return the records of a log in order."""
    return sorted(log.glob("*.json"))


def wait_for_head(log: Path, records: int) -> None:
    """Wait until HEAD counts so many records; it follows each of them a moment later."""
    deadline = time.monotonic() + 120
    while int((log / "HEAD").read_bytes().split()[0]) < records:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def read_records(log: Path) -> list[dict[str, Any]]:
    """Return what the records of a log say."""
    return [json.loads(path.read_bytes()) for path in record_files(log)]


def write_log(log: Path, records: list[dict[str, Any]]) -> None:
    """Write records as a consistent chain: indices, links, hashes and HEAD are right, whatever they say."""
    for path in record_files(log):
        path.unlink()
    link = Link()
    for record in records:
        raw = canonical_json({**record, "index": link.count, "previous": link.head})
        (log / record_name(link.count)).write_bytes(raw)
        link = link.after(raw)
    (log / HEAD).write_bytes(link.encode())


def write_journal(path: Path, values: list[dict[str, Any]]) -> None:
    """Write a journal in which every line has its right check, whatever it says."""
    lines, check = [], b""
    for body in map(canonical_json, values):
        check = blake3(check + body).hexdigest()[:16].encode()
        lines.append(b"%b %b\n" % (check, body))
    path.write_bytes(b"".join(lines))


@dataclass(frozen=True)
class Journaled:
    """Which cases of one trial each the journal of a dead run names, and as what."""

    asked: Counter[str] = field(default_factory=Counter)
    produced: set[str] = field(default_factory=set)
    measured: set[str] = field(default_factory=set)

    @property
    def pending(self) -> set[str]:
        """Return the cases that were asked for, and nothing came of it."""
        return set(self.asked) - self.produced - self.measured


def journaled(log: Path) -> Journaled:
    """Return what the journal of the one dead run of a log says."""
    said = Journaled()
    (path,) = (log / "journal").iterdir()
    for line in path.read_bytes().splitlines(keepends=True)[1:]:
        value = json.loads(line.split(b" ", 1)[1]) if line.endswith(b"\n") else {}
        if value.get("kind") == "asked":
            said.asked[value["case_id"]] += 1
            said.produced.discard(value["case_id"])
        elif value:
            (said.produced if "kind" in value else said.measured).add(value["case_id"])
    return said


def forge(log: Path, index: int, edit: Edit) -> None:
    """Let `edit` change one record and chain the whole log anew around it."""
    records = read_records(log)
    edit(records[index])
    write_log(log, records)


def probes(isolation_class: IsolationClass) -> list[dict[str, Any]]:
    """Return what a start says that proves a class: every probe that it requires was blocked."""
    return [{"name": name, "blocked": True} for name in sorted(REQUIRED_PROBES[isolation_class])]


def reckon(start: dict[str, Any], finish: dict[str, Any]) -> None:
    """Make the report of a forged finish what its forged answers give under its forged start."""
    body, report = finish["body"], finish["body"]["report"]
    started = RunStarted.model_validate_json(json.dumps(start["body"]))
    scores: dict[str, list[TrialScore]] = {}
    for trial in body["trials"]:
        evidence = TrialEvidence.model_validate_json(json.dumps(trial))
        scores.setdefault(evidence.case_id, []).append(score_of(evidence))
    per_case = [(case_id, combine_trials(trials)) for case_id, trials in scores.items()]
    report |= summarise(started.cases, per_case).model_dump(mode="json")
    report["per_case"] = [[case_id, score.model_dump(mode="json")] for case_id, score in per_case]
