"""Replays what a system under test did in a recorded run: nothing is asked, and nothing is spent."""

from dataclasses import dataclass, field
from itertools import product
from pathlib import Path

from codegenie.eval.errors import DecodingRefused, SutChanged, SutSpecInvalid
from codegenie.eval.models import BenchCase, RunPlan, SutIdentity
from codegenie.eval.ports import SutAnswer, SutCase, SutFault
from codegenie.eval.recordings.reading import RecordingOnDisk, open_recording
from codegenie.eval.recordings.records import RecordedTrial, Recording, trial_key
from codegenie.eval.sanitising import one_line
from codegenie.eval.suts.builtin import OwnSut
from codegenie.eval.suts.identity import agent_name
from codegenie.eval.system.folders import resolved
from codegenie.eval.wording import counted

_SHOWN_DIGITS = 16
_NAME_CHARACTERS = 1_000
_OMITTED = {
    "redacted": "its output held a secret of the harness and was not recorded",
    "not_kept": "its output was not kept by the run that recorded",
}


class ReplaySut(OwnSut):
    """Returns what was recorded. Its name is the digest of the recording, wherever that lies on the disk."""

    def __init__(self, found: RecordingOnDisk, then: "_Then") -> None:
        self._found = found
        name = f"replay:{found.digest[:_SHOWN_DIGITS]} of {_original(found.recording)}"
        self.identity = SutIdentity(spec=name, digest=found.digest)
        self.notes = (*_notes(found.recording), *then.notes())

    async def ask(self, case: SutCase, _seconds: float) -> SutAnswer | SutFault:
        """Return what was recorded of a trial. Raises SutChanged if its file has changed since the start."""
        try:
            trial = self._found.trial(case.case_id, case.trial)
        except DecodingRefused as refusal:
            raise SutChanged(
                f"the recording was changed during the run: {refusal.message}", where=refusal.where
            ) from None
        if trial.fault is not None:
            return SutFault(trial.fault.code, trial.fault.detail, 0.0)
        if trial.output is None:
            raise RuntimeError(f"{case.case_id}, trial {case.trial} was planned without a recorded output")
        return SutAnswer(trial.output.encode(), 0.0)


def open_replay(directory: str, plan: RunPlan) -> ReplaySut:
    """Check a whole recording, and that it has everything that the plan asks for.

    Raises SutSpecInvalid: a question that was never asked, or was another one, has no answer to be scored.
    """
    place = resolved(Path(directory)).absolute()
    try:
        found = open_recording(place)
        if found is None:
            raise SutSpecInvalid(
                "there is no recording", where=str(place), hint="`codegenie eval run --record DIR` makes one"
            )
        found.check()
        _check_plan(found, plan)
        then = _Then()
        for case, trial in product(plan.cases, range(plan.options.trials)):
            then.add(case, _checked_trial(found, case, trial))
    except DecodingRefused as refusal:
        raise SutSpecInvalid(
            f"the recording was changed after it was made: {refusal.message}",
            where=refusal.where,
            hint="ask for it again where it comes from, or record again",
        ) from None
    return ReplaySut(found, then)


def _check_plan(found: RecordingOnDisk, plan: RunPlan) -> None:
    recording, trials = found.recording, plan.options.trials
    if recording.task_class != plan.task_class.name:
        raise SutSpecInvalid(
            f"the recording is one of {recording.task_class!r}, not of {plan.task_class.name!r}",
            where=str(found.directory),
        )
    if trials > recording.trials:
        raise SutSpecInvalid(
            f"the recording has {counted(recording.trials, 'trial')} of each case, and this run asks for"
            f" {trials}",
            where=str(found.directory),
            hint="lower --trials, or record again",
        )
    wanted = [trial_key(case.case_id, trial) for case, trial in product(plan.cases, range(trials))]
    missing = [key for key in wanted if key not in recording.outputs]
    if missing:
        unfinished = "" if recording.finished else "; the run that recorded has not finished"
        more = "record again" if recording.finished else "resume that run by its own command"
        raise SutSpecInvalid(
            f"{len(missing)} of {counted(len(wanted), 'trial')} of this run were not recorded, such as"
            f" {missing[0]}{unfinished}",
            where=str(found.directory),
            hint=f"choose recorded cases with --cases, or {more}",
        )


def _checked_trial(found: RecordingOnDisk, case: BenchCase, number: int) -> RecordedTrial:
    """Return what was recorded of a trial, if it answers what the case asks today."""
    trial = found.trial(case.case_id, number)
    problem = None
    if trial.input_digest != case.input_digest:
        problem = "its input has changed since, so the recorded output answers another question"
    elif trial.omitted is not None:
        problem = _OMITTED[trial.omitted]
    if problem is not None:
        raise SutSpecInvalid(
            f"case {case.case_id}, trial {number} cannot be replayed: {problem}",
            where=str(found.directory),
            hint="choose other cases with --cases, or record again",
        )
    return trial


@dataclass(slots=True)
class _Then:
    """What was so when the trials of a plan were recorded."""

    changed: set[str] = field(default_factory=set)
    cost_usd: float | None = 0.0

    def add(self, case: BenchCase, trial: RecordedTrial) -> None:
        """Count a trial."""
        if trial.case_digest != case.digest:
            self.changed.add(case.case_id)
        known = self.cost_usd is not None and trial.cost_usd is not None
        self.cost_usd = (self.cost_usd or 0.0) + (trial.cost_usd or 0.0) if known else None

    def notes(self) -> tuple[str, ...]:
        """Say what a reader of the new report must know about it."""
        notes = []
        if self.cost_usd:
            notes.append(
                f"what is replayed cost {self.cost_usd:.2f} USD when it was recorded, and nothing now"
            )
        if self.changed:
            cases = counted(len(self.changed), "case")
            notes.append(f"changed since they were recorded, apart from their inputs: {cases}")
        return tuple(notes)


def _original(recording: Recording) -> str:
    """Return the name of the agent that was recorded. It comes from outside, so it is made safe to show."""
    return one_line(agent_name(recording.sut.spec), _NAME_CHARACTERS)


def _notes(recording: Recording) -> tuple[str, ...]:
    ran: str = recording.sut_boundary
    if recording.sut_network is not None:
        ran += f", network {recording.sut_network}"
    version = "" if recording.sut.version is None else f" (version {one_line(recording.sut.version)})"
    what = f"replay of {_original(recording)}{version}, recorded by run {recording.run_id}"
    said = f"{what}; it ran in {ran}. No agent was asked, so this is not evidence about one"
    if recording.finished:
        return (said,)
    return (said, "the run that recorded has not finished, so the recording may still grow")
