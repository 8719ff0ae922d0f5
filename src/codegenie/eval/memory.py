"""The outcome store as a trial sees it: typed outputs and answers, keyed by everything that decides them."""

import platform
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Literal, TypeVar

from blake3 import blake3
from pydantic import AfterValidator, ValidationError

from codegenie.eval.artifacts import RunArtifacts
from codegenie.eval.cache import Kind, Miss, OutcomeStore, Place
from codegenie.eval.decoding import decode_json
from codegenie.eval.errors import DecodingRefused
from codegenie.eval.evidence import Answer, RunStarted, spelled
from codegenie.eval.limits import LIMITS
from codegenie.eval.models import BenchCase, Cost, Record
from codegenie.eval.ports import Remembered, SutAnswer, SutFault
from codegenie.eval.settling import answer_problem
from codegenie.eval.trial import sut_seconds

Explain = Callable[[str], None]
RecordT = TypeVar("RecordT", bound=Record)


class StoredFault(Record):
    """A failure as it is kept."""

    code: Literal["sut.exception", "sut.timeout"]
    detail: str


def _json_object(text: str) -> str:
    try:
        if isinstance(decode_json(text.encode(), LIMITS.sut_output_bytes), dict):
            return text
    except DecodingRefused as refusal:
        raise ValueError(refusal.message) from None
    raise ValueError("not a JSON object")


class StoredOutput(Record):
    """What a system under test produced, as it is kept: its very bytes, or the fault in their place."""

    produced: Annotated[str, AfterValidator(_json_object)] | StoredFault
    cost_usd: Cost | None
    log: str
    run_id: str
    unreturned: tuple[str, ...] = ()


# An agent that may have changed since is not asked again for what it produced in the same run.
ReusedOutputs = Literal["none", "of this run", "any"]


@dataclass(frozen=True, slots=True)
class ReusePolicy:
    """What may be taken from the store. A new measurement takes nothing and keeps everything."""

    outputs: ReusedOutputs = "none"
    answers: bool = False


@dataclass(slots=True)
class StoredMemory:
    """Answers from and keeps in an outcome store; artefacts go beside the audit log."""

    start: RunStarted
    run_id: str
    timeout_seconds: float | None
    artifacts: RunArtifacts
    store: OutcomeStore | None
    policy: ReusePolicy = field(default_factory=ReusePolicy)
    explain: Explain | None = None
    warnings: list[str] = field(default_factory=list)

    def output(self, case: BenchCase, trial: int) -> Remembered | None:
        """Return what this very system produced on this very input under these limits."""
        if self.store is None or self.policy.outputs == "none":
            return None
        key = self._output_key(case, trial)
        raw = self.store.get("outputs", _place(case), key)
        stored = raw if isinstance(raw, Miss) else _decoded(StoredOutput, raw)
        if isinstance(stored, Miss):
            self._explain("outputs", case, key, stored)
            return None
        in_this_run = stored.run_id == self.run_id
        if not in_this_run and self.policy.outputs != "any":
            if self.explain is not None:
                self.explain(f"{case.case_id}: output is measured again, since the agent has no version")
            return None
        return Remembered(_produced(stored), in_this_run)

    def keep_output(self, case: BenchCase, trial: int, produced: SutAnswer | SutFault) -> None:
        """Keep an output or a failure."""
        if self.store is None:
            return
        stored = StoredOutput(
            produced=_stored_fault(produced) if isinstance(produced, SutFault) else produced.output.decode(),
            cost_usd=produced.cost_usd,
            log=produced.log.decode(),
            run_id=self.run_id,
            unreturned=produced.unreturned,
        )
        self.store.put("outputs", _place(case), self._output_key(case, trial), spelled(stored))

    def answer(self, case: BenchCase, output: bytes) -> Answer | None:
        """Return what this very rubric said of this very output."""
        if self.store is None or not self.policy.answers:
            return None
        key = self._answer_key(case, output)
        raw = self.store.get("scores", _place(case), key)
        answer = raw if isinstance(raw, Miss) else self._read_answer(raw)
        if isinstance(answer, Miss):
            self._explain("scores", case, key, answer)
            return None
        return answer

    def keep_answer(self, case: BenchCase, output: bytes, answer: Answer) -> None:
        """Keep an answer, whatever it says."""
        if self.store is not None:
            self.store.put("scores", _place(case), self._answer_key(case, output), spelled(answer))

    def artifact(self, name: str, content: bytes) -> tuple[str, str]:
        """Keep bytes beside the log."""
        return self.artifacts.keep(name, content)

    def _output_key(self, case: BenchCase, trial: int) -> dict[str, object]:
        return {
            "input": case.input_digest,
            "sut_identity": self.start.sut_identity_digest,
            "sut_seconds": sut_seconds(case, self.timeout_seconds),
            "trial": trial,
        }

    def _answer_key(self, case: BenchCase, output: bytes) -> dict[str, object]:
        return {
            "output": blake3(output).hexdigest(),
            "case": case.digest,
            "rubric": self.start.rubric_digest,
            "taxonomy": self.start.taxonomy_digest,
            "isolation_class": self.start.isolation.isolation_class,
            "harness_version": self.start.harness_version,
            # The rubric is a program, and this is what runs it.
            "python": platform.python_version(),
        }

    def _read_answer(self, raw: bytes) -> Answer | Miss:
        answer = _decoded(Answer, raw)
        if isinstance(answer, Miss):
            return answer
        problem = answer_problem(answer, self.start.severities, self.start.breakdown_keys)
        # No rubric says what became of an agent: a stored cancellation would leave every run unfinished.
        blames = any(mode.code.startswith("sut.") for mode in answer.failure_modes)
        return Miss(damaged=True) if problem or blames else answer

    def _explain(self, kind: Kind, case: BenchCase, key: dict[str, object], miss: Miss) -> None:
        what = kind.removesuffix("s")
        if miss.damaged:
            self.warnings.append(f"{case.case_id}: the stored {what} is damaged and is measured again")
        if self.explain is None or self.store is None:
            return
        if miss.damaged:
            self.explain(self.warnings[-1])
            return
        changed = ", ".join(self.store.changed(kind, _place(case), key))
        why = f"{what} is measured again, since {changed} changed" if changed else f"no {what} is stored yet"
        self.explain(f"{case.case_id}: {why}")


def _place(case: BenchCase) -> Place:
    return Place(case.task_class, case.case_id)


def _stored_fault(fault: SutFault) -> StoredFault:
    return StoredFault.model_validate({"code": fault.code, "detail": fault.detail})


def _decoded(kind: type[RecordT], raw: bytes) -> RecordT | Miss:
    """Read a value of the store strictly: whoever wrote it may not have been us."""
    try:
        decode_json(raw, len(raw))
        return kind.model_validate_json(raw)
    except (DecodingRefused, ValidationError):
        return Miss(damaged=True)


def _produced(stored: StoredOutput) -> SutAnswer | SutFault:
    log = stored.log.encode()
    if isinstance(stored.produced, StoredFault):
        fault = stored.produced
        return SutFault(fault.code, fault.detail, stored.cost_usd, log, unreturned=stored.unreturned)
    return SutAnswer(stored.produced.encode(), stored.cost_usd, log, stored.unreturned)
