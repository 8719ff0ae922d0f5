"""What `verify` does: check the log, then the bench on disk, then, if asked, run the rubrics again."""

import os
import re
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, closing
from dataclasses import dataclass, field, replace
from typing import Literal

from codegenie.eval.bench.copies import CaseSnapshots
from codegenie.eval.bench.loading import BenchRoot
from codegenie.eval.errors import (
    BenchCaseDigestMismatch,
    BenchInvalid,
    HarnessFailure,
    NotMeasured,
    SettingsInvalid,
)
from codegenie.eval.evidence import Answer, TrialEvidence, was_judged
from codegenie.eval.execution.opening import opened_executor, refuse_unconfined
from codegenie.eval.execution_ports import Executor, Judged
from codegenie.eval.gate.deciding import bench_on_disk
from codegenie.eval.gate.evidence import BenchOnDisk
from codegenie.eval.isolation.rubric_runner import rubric_runner
from codegenie.eval.limits import LIMITS
from codegenie.eval.log.chain import broken, record_name
from codegenie.eval.log.reading import VerifiedLog, expect_head
from codegenie.eval.log.records import RunFinished
from codegenie.eval.log.runs import RunEntry
from codegenie.eval.models import BenchCase, IsolationClass, TaskClass
from codegenie.eval.planning import answer_room
from codegenie.eval.ports import CaseStore, Clock, RubricRunner
from codegenie.eval.sanitising import Redactor
from codegenie.eval.system.run_directory import run_directory
from codegenie.eval.trial import EXECUTIONS, judge_in_room
from codegenie.eval.validation import bounded, judge

RootsOf = Callable[[str], BenchRoot]
"""Returns the bench roots in which to look for a task class."""


Kind = Literal["differs", "nondeterministic"]


# A rubric that decides by coin toss agrees with itself this many times in one of 32 cases.
_REPEATS = 5


@dataclass(frozen=True, slots=True)
class Difference:
    """One trial for which the rubric now gives another answer."""

    case_id: str
    trial: int
    kind: Kind
    stored: float
    now: float


@dataclass(frozen=True, slots=True)
class Rescorer:
    """Judges stored outputs with the bench on disk, in the isolation class that the verifying user chose."""

    task_class: TaskClass
    cases: dict[str, BenchCase]
    store: CaseStore
    rubrics: RubricRunner
    redactor: Redactor
    answer_bytes: int = LIMITS.answer_bytes
    # Executes the steps of cases again; without it what is stored of them is judged.
    executor: Executor | None = None

    async def differences(self, outputs: Iterable[tuple[TrialEvidence, Judged]]) -> AsyncIterator[Difference]:
        """Yield what differs. A rubric that contradicts itself is named as such."""
        for trial, output in outputs:
            now = await self._judge(trial, output)
            if now != trial.answer:
                kind: Kind = "nondeterministic" if await self._wavers(trial, output, now) else "differs"
                yield Difference(trial.case_id, trial.trial, kind, trial.answer.score, now.score)

    async def _wavers(self, trial: TrialEvidence, output: Judged, now: Answer) -> bool:
        for _ in range(_REPEATS):
            if await self._judge(trial, output) != now:
                return True
        return False

    async def _judge(self, trial: TrialEvidence, judged: Judged) -> Answer:
        case = self.cases[trial.case_id]
        if case.execute and self.executor is not None:
            judged = Judged(judged.output, await self.executor.execute(case, judged.output))
        run = await judge_in_room(self.store, self.rubrics, case, judged)
        return bounded(judge(run, self.task_class, self.redactor), self.answer_bytes)


@dataclass(slots=True)
class Verification:
    """What was verified, and what could not be checked. If a check raises, it says how far it came."""

    log: VerifiedLog
    benches_changed: list[str] = field(default_factory=list)
    benches_missing: list[str] = field(default_factory=list)
    benches_invalid: dict[str, str] = field(default_factory=dict)
    benches_stale: dict[str, BenchCaseDigestMismatch] = field(default_factory=dict)
    rescored: int = 0
    not_rescored: int = 0
    # The class that was proved on this machine, and the runs that name another class.
    rescored_in: IsolationClass | None = None
    other_classes: dict[str, IsolationClass] = field(default_factory=dict)
    differences: list[tuple[RunEntry, Difference]] = field(default_factory=list)
    benches: dict[str, BenchOnDisk] = field(default_factory=dict)

    @property
    def not_checked(self) -> list[str]:
        """Name what a reader must not take for checked."""
        unread = self.log.link is None
        missing = []
        if unread or self.benches_changed or self._classes() - self.benches.keys():
            missing.append("case_digests")
        if unread or self.log.artifacts_missing:
            missing.append("artifacts")
        if self.not_rescored:
            missing.append("rescore")
        return missing

    def check(
        self, roots_of: RootsOf, clock: Clock, expected: str | None, classes: Collection[str] = ()
    ) -> None:
        """Verify the log, and compare the newest run of each class with the bench on disk.

        A bench that is missing, invalid or changed is noted and does not stop the check of the others.
        Without `classes` every bench of the log is checked. `roots_of` says where a class is. Raises
        ChainTamperDetected if the log fails verification, SettingsInvalid if `expected` is not a hash, and
        NotMeasured if there is nothing to check.
        """
        if expected is not None and not re.fullmatch(r"[0-9a-f]{64}", expected):
            raise SettingsInvalid(
                "--expect-head is not the hash of a record",
                hint="a hash has 64 digits and small letters a to f; `run` and `verify` print it",
            )
        self.log.verify(clock)
        if expected is not None:
            expect_head(self.log, expected)
        if not self.log.hashes:
            raise NotMeasured(
                "there is no log to verify",
                where=str(self.log.directory),
                hint="`codegenie eval run` makes one; --out names another",
            )
        for name in classes:
            if name not in self._classes():
                raise NotMeasured(f"the log holds no run of {name!a}", where=str(self.log.directory))
        for name in sorted(classes or self._classes()):
            self._check_bench(name, roots_of)

    def _classes(self) -> set[str]:
        return {entry.task_class for entry in self.log.history.runs.values()}

    def _check_bench(self, name: str, roots_of: RootsOf) -> None:
        try:
            bench = bench_on_disk(name, roots_of(name))
        except (BenchInvalid, HarnessFailure) as refusal:
            self.benches_invalid[name] = str(refusal)
            return
        except BenchCaseDigestMismatch as stale:
            self.benches_stale[name] = stale
            return
        if bench is None:
            self.benches_missing.append(name)
            return
        self.benches[name] = bench
        newest = next(self.log.history.of_class(name))
        started = self.log.started(newest)
        problem = bench.contradiction(started)
        if problem is not None:
            raise broken(record_name(newest.started_index), problem)
        if not bench.still_judges(started):
            self.benches_changed.append(name)

    async def rescore(self, isolation: str = "auto", *, execute: bool = False) -> None:
        """Run the rubrics again for every finished run whose bench on disk is still the one that it measured.

        With `execute` the steps of cases are executed again, too; else what is stored of them is judged.
        They run in a class that is proved on this machine. The class that a run names does not protect the
        machine of the user who verifies it.
        """
        async with AsyncExitStack() as held:
            directory = held.enter_context(run_directory())
            rubrics: RubricRunner | None = None
            for entry in self.log.history.runs.values():
                if entry.finished_index is None:
                    continue
                finished = self.log.finished(entry)
                judged = [trial for trial in finished.trials if was_judged(trial.answer)]
                bench = self._bench_of(entry)
                if bench is None or not judged:
                    self.not_rescored += len(judged)
                    continue
                if rubrics is None:
                    rubrics = await rubric_runner(isolation, "zygote", directory)
                    held.push_async_callback(rubrics.close)
                    self.rescored_in = rubrics.isolation_class
                self._note_class(entry, finished)
                with closing(CaseSnapshots(bench.task_class, directory)) as store:
                    await self._judge_again(entry, judged, _Again(bench, store, rubrics, execute=execute))

    def _bench_of(self, entry: RunEntry) -> BenchOnDisk | None:
        bench = self.benches.get(entry.task_class)
        return bench if bench is not None and bench.still_judges(self.log.started(entry)) else None

    def _note_class(self, entry: RunEntry, finished: RunFinished) -> None:
        if finished.report.isolation_class != self.rescored_in:
            self.other_classes[entry.run_id] = finished.report.isolation_class

    async def _judge_again(
        self,
        entry: RunEntry,
        judged: list[TrialEvidence],
        parts: "_Again",
    ) -> None:
        started = self.log.started(entry)
        room = answer_room(len(started.cases), started.trials)
        cases = {case.case_id: case for case in parts.bench.cases}
        rescorer = Rescorer(
            parts.bench.task_class, cases, parts.store, parts.rubrics, Redactor(os.environ), room
        )
        async with AsyncExitStack() as used:
            if parts.execute and any(case.execute for case in parts.bench.cases):
                executor = await used.enter_async_context(self._executor(parts))
                rescorer = replace(rescorer, executor=executor)
            async for difference in rescorer.differences(self._outputs(judged, rescorer)):
                self.differences.append((entry, difference))

    @property
    def nothing_rescored(self) -> str | None:
        """Say why no output was judged again; None if one was. Call it only if a re-score was requested."""
        if self.rescored:
            return None
        if not self.not_rescored:
            return "no run of the log left an output that a rubric has judged"
        unread = {
            "is not here": self.benches_missing,
            "has changed": self.benches_changed,
            "cannot be read": self.benches_invalid,
            "is stale": self.benches_stale,
        }
        found = [f"bench {name} {why}" for why, names in unread.items() for name in names]
        return "; ".join(found) or "its outputs are missing, redacted or of a bench that was not asked for"

    def _executor(self, parts: "_Again") -> AbstractAsyncContextManager[Executor]:
        """Return an executor in the class of the rubrics. Raises IsolationUnavailable in `subprocess`."""
        isolation_class = parts.rubrics.isolation_class
        refuse_unconfined(isolation_class, "auto")
        places = (parts.bench.task_class.directory.parent, self.log.directory)
        secrets = [os.path.realpath(place) for place in places]
        return opened_executor(isolation_class, parts.store, secrets)

    def _outputs(
        self, trials: Iterable[TrialEvidence], rescorer: Rescorer
    ) -> Iterator[tuple[TrialEvidence, Judged]]:
        """Yield every trial whose output is stored as it was judged. One at a time: they may be large."""
        for trial in trials:
            output = self.log.artifact(trial, "output")
            executions: bytes | None = None
            has_steps = bool(rescorer.cases[trial.case_id].execute)
            if has_steps and rescorer.executor is None:
                executions = self.log.artifact(trial, EXECUTIONS)
            if output is None or (has_steps and rescorer.executor is None and executions is None):
                self.not_rescored += 1
            else:
                self.rescored += 1
                yield trial, Judged(output, executions)


@dataclass(frozen=True, slots=True)
class _Again:
    """What it takes to judge the outputs of one run again."""

    bench: BenchOnDisk
    store: CaseStore
    rubrics: RubricRunner
    # Whether the steps of cases are executed again.
    execute: bool
