"""Records a run for others to replay: what each trial left in the log, without what was redacted there."""

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from typing import TypedDict

from codegenie.eval.aggregation import TrialKey
from codegenie.eval.errors import ChainTamperDetected, HarnessFailure, SettingsInvalid
from codegenie.eval.evidence import Account, TrialEvidence, was_judged
from codegenie.eval.log.artifacts import ArtifactStore
from codegenie.eval.log.records import RunStarted, start_digest
from codegenie.eval.models import BenchCase, RunPlan
from codegenie.eval.recordings.records import Omitted, RecordedFault, RecordedTrial, Recording
from codegenie.eval.recordings.writing import RecordingWriter, check_place, open_writer
from codegenie.eval.suts.identity import is_replay
from codegenie.eval.wording import counted

_OUTPUT = "output"
_CANCELLED = "sut.cancelled"


class _Produced(TypedDict, total=False):
    """The one field of a recorded trial that says what was produced."""

    output: str
    fault: RecordedFault
    omitted: Omitted


@dataclass(slots=True)
class Recorder:
    """Copies the trials of one run into a recording."""

    started: RunStarted
    artifacts: ArtifactStore
    writer: RecordingWriter
    _run_id: str | None = None
    _finished: bool = False
    _omitted: set[TrialKey] = field(default_factory=set)
    _cases: Mapping[str, BenchCase] = field(default_factory=dict)

    def begin(self, run_id: str) -> None:
        """Say in the index whose recording this is, before the first trial is measured."""
        self._run_id = run_id
        self._cases = {case.case_id: case for case in self.started.cases}
        self.save()

    def keep(self, evidence: TrialEvidence) -> None:
        """Record one trial, measured now or before the run was resumed."""
        if any(mode.code == _CANCELLED for mode in evidence.answer.failure_modes):
            return
        case = self._cases[evidence.case_id]
        trial = RecordedTrial(
            **{name: getattr(evidence, name) for name in Account.model_fields},
            **self._produced(evidence),
            task_class=case.task_class,
            case_id=case.case_id,
            trial=evidence.trial,
            input_digest=case.input_digest,
            case_digest=case.digest,
            cost_usd=evidence.cost_usd,
            wall_clock_ms=evidence.wall_clock_ms,
        )
        if trial.omitted is not None:
            self._omitted.add((trial.case_id, trial.trial))
        self.writer.keep(trial)

    def _produced(self, evidence: TrialEvidence) -> _Produced:
        """Say what was produced. Only the text that was judged is an output."""
        if not was_judged(evidence.answer):
            mode = next(mode for mode in evidence.answer.failure_modes if mode.code.startswith("sut."))
            fault = {"code": mode.code, "detail": mode.detail or ""}
            return {"fault": RecordedFault.model_validate(fault)}
        digest = evidence.artifacts.get(_OUTPUT)
        if digest is not None:
            with suppress(ChainTamperDetected):
                output = self.artifacts.read(digest)
                if output is not None:
                    return {"output": output.decode()}
        redacted = any(name.startswith(f"{_OUTPUT}_redacted") for name in evidence.artifacts)
        return {"omitted": "redacted" if redacted else "not_kept"}

    def save(self, *, finished: bool = False) -> None:
        """Write the index. It names what was recorded so far."""
        if self._run_id is None:
            return
        started, self._finished = self.started, finished
        self.writer.save(
            Recording(
                task_class=started.task_class,
                run_id=self._run_id,
                start=start_digest(started),
                finished=finished,
                harness_version=started.harness_version,
                sut=started.sut,
                sut_boundary=started.sut_boundary,
                sut_network=started.sut_network,
                sut_upstream=started.sut_upstream,
                trials=started.trials,
            )
        )

    def save_unfinished(self) -> None:
        """Write the index of a run that ends early, with what it has recorded.

        If that fails, the run itself tells why it ended, and records again when it is resumed.
        """
        if not self._finished:
            with suppress(HarnessFailure):
                self.save()

    @property
    def notes(self) -> tuple[str, ...]:
        """Say what was recorded, and what could not be."""
        trials = counted(self.writer.files, "trial")
        notes = [f"recorded {trials}: --sut replay:{self.writer.directory} replays them"]
        if self._omitted:
            case_id, trial = min(self._omitted)
            what = f"{counted(len(self._omitted), 'output')} cannot be replayed"
            notes.append(
                f"{what}, such as that of {case_id}, trial {trial}: the log does not hold what was judged,"
                " because that held a secret or there was no room"
            )
        return tuple(notes)


@contextmanager
def recorder_of(plan: RunPlan, started: RunStarted) -> Iterator[Recorder]:
    """Give what records a run in the directory of its plan, before the start of the run is in the log.

    Raises SettingsInvalid if the run may not record there.
    """
    if plan.options.record_dir is None:
        raise RuntimeError("the run is not to be recorded")
    if is_replay(started.sut.spec):
        raise SettingsInvalid(
            "--record: a replay is not recorded", hint="copy the directory of the recording instead"
        )
    check_place(plan.options.record_dir, (plan.out_dir, plan.options.cache_dir))
    with closing(open_writer(plan.options.record_dir)) as writer:
        writer.check_may_record(start_digest(started), resume=plan.options.resumes)
        recorder = Recorder(started, ArtifactStore(plan.out_dir / "artifacts"), writer)
        try:
            yield recorder
        finally:
            recorder.save_unfinished()
