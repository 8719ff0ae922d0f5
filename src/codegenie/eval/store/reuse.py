"""The outcome store as a trial uses it: typed outputs and answers. Keys hold all that decides them."""

import platform
from base64 import b64decode, b64encode
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Annotated, Literal, Self, TypeVar

from blake3 import blake3
from pydantic import AfterValidator, ValidationError

from codegenie.eval.canonical import spelled
from codegenie.eval.decoding import decode_json
from codegenie.eval.errors import ChainTamperDetected, DecodingRefused
from codegenie.eval.evidence import Account, Answer, Promised, answer_problem
from codegenie.eval.execution_ports import Judged
from codegenie.eval.limits import LIMITS
from codegenie.eval.log.artifacts import RunArtifacts
from codegenie.eval.log.records import RunStarted
from codegenie.eval.models import BenchCase, Cost, Record, RunOptions
from codegenie.eval.ports import (
    Explain,
    KeptWork,
    Reads,
    Remembered,
    SutAnswer,
    SutFault,
)
from codegenie.eval.store.outcomes import Kind, Miss, OutcomeStore, Place
from codegenie.eval.trial import sut_seconds
from codegenie.eval.validation import failed

_COLLECTED = 1
_WAVERS = "nondeterministic: the rubric judged the same output differently before"
RecordT = TypeVar("RecordT", bound=Record)


class StoredFault(Record):
    """A failure as the store keeps it."""

    code: Literal["sut.exception", "sut.timeout"]
    detail: str


def _is_json_object(raw: bytes) -> bool:
    with suppress(DecodingRefused):
        return isinstance(decode_json(raw, LIMITS.sut_output_bytes), dict)
    return False


def _json_object(text: str) -> str:
    if not _is_json_object(text.encode()):
        raise ValueError("not a JSON object")
    return text


class StoredWork(Record):
    """What the harness collected beside an output. Contents that are no text are in base64, by their hash."""

    listing: str
    patch: str
    binaries: dict[str, str]

    @classmethod
    def of(cls, work: KeptWork) -> Self:
        """Return work as the store keeps it."""
        binaries = {digest: b64encode(content).decode() for digest, content in work.binaries.items()}
        return cls(listing=work.listing, patch=work.patch, binaries=binaries)

    def kept(self) -> KeptWork:
        """Return work as a trial keeps it."""
        binaries = {digest: b64decode(content) for digest, content in self.binaries.items()}
        return KeptWork(self.listing, self.patch, binaries)


class StoredOutput(Record):
    """What a system under test produced, as the store keeps it: its exact bytes, or its fault."""

    produced: Annotated[str, AfterValidator(_json_object)] | StoredFault
    cost_usd: Cost | None
    log: str
    run_id: str
    # What it used, and what was collected. The streams of a command stay with the run that made them.
    account: Account | None = None
    work: StoredWork | None = None


@dataclass(frozen=True, slots=True)
class ReusePolicy:
    """What may be reused from the store, and why not. A fresh run reuses nothing and stores everything."""

    outputs: bool = False
    answers: bool = False
    because: str | None = None

    @classmethod
    def of_run(cls, start: RunStarted, options: RunOptions) -> Self:
        """Say what a run may reuse from others. A fresh run, or one without a store, reuses nothing."""
        if options.cache_dir is None or options.fresh:
            return cls()
        # Lucky results could be collected in the store case by case, so evidence is measured in one run.
        if start.policy_digest is not None and start.selection.kind == "all":
            return cls(because="a whole run under a policy makes its own outputs and scores")
        # A name does not prove that it is the same agent as before, except for the harness's own agents.
        if start.sut_boundary != "harness" and start.sut.version is None:
            return cls(answers=True, because="the agent has no version")
        return cls(outputs=True, answers=True)


@dataclass(slots=True)
class StoredMemory:
    """Reads from and writes to an outcome store. Artefacts are kept with the audit log."""

    start: RunStarted
    run_id: str
    timeout_seconds: float | None
    artifacts: RunArtifacts
    store: OutcomeStore | None
    reads: Reads = "input"
    policy: ReusePolicy = field(default_factory=ReusePolicy)
    explain: Explain | None = None
    warnings: list[str] = field(default_factory=list)

    def output(self, case: BenchCase, trial: int) -> Remembered | None:
        """Return what exactly this system produced on exactly this input under these limits."""
        if not self.policy.outputs:
            if self.explain is not None and self.policy.because is not None:
                self.explain(f"{case.case_id}: output is measured again, since {self.policy.because}")
            return None
        stored = self._stored_output(case, trial)
        if isinstance(stored, Miss):
            self._note_miss("outputs", case, self._output_key(case, trial), stored)
            return None
        if isinstance(stored.produced, StoredFault):
            # Perhaps the agent's provider failed, but we cannot know. Asking again only for what failed would
            # produce lucky numbers (CH-04). So a run that is to be evidence takes nothing from another run.
            if self.explain is not None:
                self.explain(f"{case.case_id}: output is measured again, since run {stored.run_id} had none")
            return None
        return Remembered(_produced(stored), in_this_run=False)

    def own_output(self, case: BenchCase, trial: int, promised: Promised) -> Remembered | None:
        """Return the output that the journal of this run names by its hash, wherever these bytes are kept."""
        output, work = self._kept(promised.output), None
        stored = self._stored_output(case, trial)
        if isinstance(stored, StoredOutput) and isinstance(stored.produced, str):
            found = stored.produced.encode()
            output = output or found
            work = _work(stored) if output == found else None
        if output is None or blake3(output).hexdigest() != promised.output or not _is_json_object(output):
            self.warnings.append(
                f"{case.case_id}: the agent's output is missing from the store, and the agent is asked again"
            )
            return None
        log = b"" if promised.log is None else self._kept(promised.log) or b""
        left_behind = ((name, self._kept(digest)) for name, digest in promised.left_behind.items())
        answer = SutAnswer(
            output,
            promised.cost_usd,
            log,
            account=promised.account,
            work=work,
            left_behind=tuple((name, content) for name, content in left_behind if content is not None),
        )
        return Remembered(answer, in_this_run=True)

    def _kept(self, digest: str) -> bytes | None:
        with suppress(ChainTamperDetected):
            return self.artifacts.read(digest)
        return None

    def _stored_output(self, case: BenchCase, trial: int) -> StoredOutput | Miss:
        if self.store is None:
            return Miss()
        raw = self.store.get("outputs", _place(case), self._output_key(case, trial))
        return raw if isinstance(raw, Miss) else _decoded(StoredOutput, raw)

    def keep_output(self, case: BenchCase, trial: int, produced: SutAnswer | SutFault) -> None:
        """Keep an output or a failure."""
        if self.store is None:
            return
        stored = StoredOutput(
            produced=_stored_fault(produced) if isinstance(produced, SutFault) else produced.output.decode(),
            cost_usd=produced.cost_usd,
            log=produced.log.decode(),
            run_id=self.run_id,
            account=produced.account,
            work=None if produced.work is None else StoredWork.of(produced.work),
        )
        self.store.put("outputs", _place(case), self._output_key(case, trial), spelled(stored))

    def executions(self, case: BenchCase, output: bytes) -> bytes | None:
        """Return what came of the steps of exactly this case, for this output, in this class."""
        if self.store is None or not self.policy.answers:
            return None
        raw = self.store.get("executions", _place(case), self._execution_key(case, output))
        if isinstance(raw, Miss) or not _is_json_object(raw):
            found = raw if isinstance(raw, Miss) else Miss(damaged=True)
            self._note_miss("executions", case, self._execution_key(case, output), found)
            return None
        return raw

    def keep_executions(self, case: BenchCase, output: bytes, executions: bytes) -> None:
        """Keep what came of the steps."""
        if self.store is not None:
            self.store.put("executions", _place(case), self._execution_key(case, output), executions)

    def _execution_key(self, case: BenchCase, output: bytes) -> dict[str, object]:
        return {
            "output": blake3(output).hexdigest(),
            "case": case.digest,
            "isolation_class": self.start.isolation.isolation_class,
            "harness_version": self.start.harness_version,
            # A step and a rubric are programs, and this interpreter runs them.
            "python": platform.python_version(),
        }

    def answer(self, case: BenchCase, judged: Judged) -> Answer | None:
        """Return what exactly this rubric said about exactly this."""
        if not self.policy.answers:
            return None
        answer = self._stored_answer(case, judged)
        if isinstance(answer, Miss):
            self._note_miss("scores", case, self._answer_key(case, judged), answer)
            return None
        return answer

    def keep_answer(self, case: BenchCase, judged: Judged, answer: Answer) -> Answer:
        """Keep an answer, whatever it says. If one is stored already, both must say the same.

        If stored answers could be replaced, a user could repeat an unstable rubric until its answer is good.
        """
        if self.store is None:
            return answer
        before = self._stored_answer(case, judged)
        if isinstance(before, Miss):
            self.store.put("scores", _place(case), self._answer_key(case, judged), spelled(answer))
            return answer
        if _meaning(before) == _meaning(answer):
            return answer
        self.warnings.append(
            f"{case.case_id}: the rubric is not deterministic: it judged the same output differently before"
        )
        return failed("rubric.malformed_output", _WAVERS)

    def _stored_answer(self, case: BenchCase, judged: Judged) -> Answer | Miss:
        if self.store is None:
            return Miss()
        raw = self.store.get("scores", _place(case), self._answer_key(case, judged))
        return raw if isinstance(raw, Miss) else self._read_answer(raw)

    def artifact(self, name: str, content: bytes) -> tuple[str, str]:
        """Keep bytes with the audit log."""
        return self.artifacts.keep(name, content)

    def _output_key(self, case: BenchCase, trial: int) -> dict[str, object]:
        return {
            **_read_by_agent(self.reads, case),
            **self._agent_program(),
            "sut_identity": self.start.sut_identity_digest,
            "sut_seconds": sut_seconds(case, self.timeout_seconds),
            # Which changes of an agent's files are part of its output.
            "collected": _COLLECTED,
            "trial": trial,
        }

    def _agent_program(self) -> dict[str, object]:
        """Return what the identity lacks: the harness's own agents change with the version of the harness."""
        if self.start.sut_boundary != "harness":
            return {}
        return {"harness": [self.start.harness_version, platform.python_version()]}

    def _answer_key(self, case: BenchCase, judged: Judged) -> dict[str, object]:
        executions = judged.executions
        # Code of an agent may behave differently each time, and then it is not the rubric that wavers.
        steps = {} if executions is None else {"executions": blake3(executions).hexdigest()}
        return {
            **self._execution_key(case, judged.output),
            **steps,
            "rubric": self.start.rubric_digest,
            "taxonomy": self.start.taxonomy_digest,
        }

    def _read_answer(self, raw: bytes) -> Answer | Miss:
        answer = _decoded(Answer, raw)
        if isinstance(answer, Miss):
            return answer
        problem = answer_problem(answer, self.start.severities, self.start.breakdown_keys)
        # A rubric never reports a failure of the agent. A stored cancellation would leave runs unfinished.
        blames = any(mode.code.startswith("sut.") for mode in answer.failure_modes)
        return Miss(damaged=True) if problem or blames else answer

    def _note_miss(self, kind: Kind, case: BenchCase, key: dict[str, object], miss: Miss) -> None:
        """Warn about a damaged value, and explain why there is none to reuse if that is asked for."""
        what = kind.removesuffix("s")
        damage = f"the stored {what} is damaged or was not written by this store, and is measured again"
        if miss.damaged:
            self.warnings.append(f"{case.case_id}: {damage}")
        if self.explain is not None and self.store is not None:
            why = damage if miss.damaged else self._why_absent(self.store, kind, case, key)
            self.explain(f"{case.case_id}: {why}")

    @staticmethod
    def _why_absent(store: OutcomeStore, kind: Kind, case: BenchCase, key: dict[str, object]) -> str:
        what = kind.removesuffix("s")
        changed = ", ".join(store.changed(kind, _place(case), key))
        return f"{what} is measured again, since {changed} changed" if changed else f"no {what} is stored yet"


def _read_by_agent(reads: Reads, case: BenchCase) -> dict[str, object]:
    """Return the digest of everything in a case that the system under test can read."""
    return {"input": case.input_digest} if reads == "input" else {"case": case.digest}


def _meaning(answer: Answer) -> Answer:
    """Return the part of an answer that decides something. A detail may name a path or a time."""
    modes = tuple(mode.model_copy(update={"detail": None}) for mode in answer.failure_modes)
    return answer.model_copy(update={"failure_modes": modes})


def _place(case: BenchCase) -> Place:
    return Place(case.task_class, case.case_id)


def _stored_fault(fault: SutFault) -> StoredFault:
    return StoredFault.model_validate({"code": fault.code, "detail": fault.detail})


def _decoded(kind: type[RecordT], raw: bytes) -> RecordT | Miss:
    """Read a value of the store strictly: another program may have written it."""
    try:
        decode_json(raw, len(raw))
        return kind.model_validate_json(raw)
    except (DecodingRefused, ValidationError):
        return Miss(damaged=True)


def _produced(stored: StoredOutput) -> SutAnswer | SutFault:
    log, used = stored.log.encode(), stored.account
    if isinstance(stored.produced, StoredFault):
        fault = stored.produced
        return SutFault(fault.code, fault.detail, stored.cost_usd, log, account=used, work=_work(stored))
    return SutAnswer(stored.produced.encode(), stored.cost_usd, log, account=used, work=_work(stored))


def _work(stored: StoredOutput) -> KeptWork | None:
    return None if stored.work is None else stored.work.kept()
