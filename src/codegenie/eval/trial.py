"""Measure one case, from system under test to evidence. All access to the outside goes through ports."""

import asyncio
import json
from base64 import b64encode
from dataclasses import dataclass, replace
from typing import Literal

from blake3 import blake3

from codegenie.eval.errors import HarnessFailure, ModelNotReached
from codegenie.eval.evidence import (
    BINARIES,
    COLLECTED,
    PATCH,
    Account,
    Answer,
    Promised,
    TrialEvidence,
    WorkItem,
)
from codegenie.eval.execution_ports import Executor, Judged
from codegenie.eval.limits import LIMITS
from codegenie.eval.models import BenchCase, TaskClass
from codegenie.eval.ports import (
    BoxedRunner,
    CaseStore,
    Clock,
    KeptWork,
    Remembered,
    RubricRun,
    RubricRunner,
    SutAnswer,
    SutCase,
    SutFault,
    SutRunner,
    TrialMemory,
    TrialNotices,
    WorkCollector,
)
from codegenie.eval.sanitising import Redactor
from codegenie.eval.stopping import Stop as Stop  # noqa: PLC0414 - its documented path
from codegenie.eval.stopping import to_its_end
from codegenie.eval.validation import bounded, failed, judge

Produced = SutAnswer | SutFault
Reused = Literal["none", "output", "score", "both"]
EXECUTIONS = "executions"
"""The artefact that holds what came of the steps of a case, as the rubric got it."""

_REDACTED_OUTPUT = "output_redacted"


@dataclass(frozen=True, slots=True)
class TrialParts:
    """The parts that a trial needs. They are the same for all trials of a run."""

    task_class: TaskClass
    store: CaseStore
    collector: WorkCollector
    sut: SutRunner
    rubrics: RubricRunner
    memory: TrialMemory
    notices: TrialNotices
    redactor: Redactor
    clock: Clock
    stop: Stop
    timeout_seconds: float | None = None
    answer_bytes: int = LIMITS.answer_bytes
    # Only a bench with steps needs it.
    executor: Executor | None = None


def sut_seconds(case: BenchCase, timeout_seconds: float | None) -> float:
    """Return the deadline of a system under test: that of the case, or `--timeout` if that is less."""
    seconds = float(case.sut_wall_clock_seconds)
    return seconds if timeout_seconds is None else min(seconds, timeout_seconds)


def rubric_request(case: BenchCase, judged: Judged) -> bytes:
    """Write the one document that a rubric reads: the case and the output, but not which agent is judged."""
    fields = case.model_dump(mode="json", exclude={"digest", "input_digest"}, exclude_none=True)
    head = {"protocol": 1, "case": fields, "input_dir": "input", "expected_dir": "expected"}
    # A case without steps gets the request that it always got.
    steps = b"" if judged.executions is None else b', "executions": ' + judged.executions
    beginning = json.dumps(head, ensure_ascii=False).encode()[:-1]
    return beginning + b', "harness_output": ' + judged.output + steps + b"}"


async def run_trial(parts: TrialParts, item: WorkItem) -> TrialEvidence:
    """Ask the system under test, then the rubric; reuse what is known; return the evidence."""
    started = parts.clock.monotonic()
    case, trial = item.case, item.trial
    remembered = _remembered(parts, item)
    reused: Reused = "none" if remembered is None or remembered.in_this_run else "output"
    if remembered is not None:
        produced: Produced | None = remembered.produced
    else:
        produced = await parts.stop.unless_agents_stop(_ask(parts, item))
    if produced is not None and reused == "none":
        parts.notices.spent(produced.cost_usd)
    artifacts = {} if produced is None else _keep_produced(parts, produced)
    if isinstance(produced, SutAnswer) and remembered is None:
        parts.notices.produced(item, _promised(produced, artifacts))
    # An output that contains a secret of the harness is judged, but never written to a disk.
    redacted = any(name.startswith(_REDACTED_OUTPUT) for name in artifacts)
    if produced is not None and remembered is None and not redacted and not _was_cancelled(produced):
        parts.memory.keep_output(case, trial, produced)
    if isinstance(produced, SutAnswer):
        answer, was_known = await _answered(parts, case, produced.output, artifacts)
        if was_known:
            reused = "score" if reused == "none" else "both"
    elif isinstance(produced, SutFault):
        answer = failed(produced.code, produced.detail)
    else:
        answer = failed("sut.cancelled", parts.stop.reason)
    # One of the calls in this run led to this outcome: the call of now, or the remembered one.
    own = remembered is not None and remembered.in_this_run
    account = produced.account if produced is not None and produced.account else Account()
    return TrialEvidence(
        **dict(account),
        case_id=case.case_id,
        trial=trial,
        answer=bounded(answer, parts.answer_bytes),
        cost_usd=None if produced is None else produced.cost_usd,
        wall_clock_ms=round((parts.clock.monotonic() - started) * 1000),
        reused=reused,
        artifacts=artifacts,
        interrupted=max(0, item.asked_before - own),
    )


def _was_cancelled(produced: Produced) -> bool:
    """Say whether the harness, or what it needs, failed: such an outcome is never kept for another run."""
    return isinstance(produced, SutFault) and produced.code == "sut.cancelled"


def _promised(produced: SutAnswer, artifacts: dict[str, str]) -> Promised:
    """Return what the journal notes about an output before it is judged."""
    names = {name for name, _ in produced.left_behind}
    return Promised(
        output=blake3(produced.output).hexdigest(),
        cost_usd=produced.cost_usd,
        log=artifacts.get("sut_log"),
        account=produced.account,
        left_behind={name: digest for name, digest in artifacts.items() if name in names},
    )


def _remembered(parts: TrialParts, item: WorkItem) -> Remembered | None:
    """Return an output for which no call is needed. An output of this run is found only by its hash."""
    if item.promised is not None:
        return parts.memory.own_output(item.case, item.trial, item.promised)
    return parts.memory.output(item.case, item.trial)


async def _ask(parts: TrialParts, item: WorkItem) -> Produced:
    if isinstance(parts.sut, BoxedRunner):
        produced = await _ask_in_box(parts, parts.sut, item)
    else:
        produced = await _ask_without_box(parts, item)
    # Free text is cleaned where it comes in. All code after this line sees only the cleaned text.
    log = _clean_end(parts.redactor, produced.log, LIMITS.sut_log_bytes).encode()
    if isinstance(produced, SutFault):
        return replace(produced, detail=parts.redactor.detail(produced.detail), log=log)
    return replace(produced, log=log)


async def _ask_without_box(parts: TrialParts, item: WorkItem) -> Produced:
    case, seconds = item.case, sut_seconds(item.case, parts.timeout_seconds)
    # Write this down first: from here on the agent was asked, however the run ends.
    await parts.notices.asking(item)
    if not parts.sut.wants_input:
        return await parts.sut.ask(SutCase(case.case_id, case.task_class, "", item.trial), seconds)
    with parts.store.for_sut(case) as directory:
        question = SutCase(case.case_id, case.task_class, str(directory / "input"), item.trial)
        produced = await parts.sut.ask(question, seconds)
        return await to_its_end(parts.collector.completed(case, directory, produced))


async def _ask_in_box(parts: TrialParts, sut: BoxedRunner, item: WorkItem) -> Produced:
    """Ask, and note if the call does not count: then a resumed run asks again as if for the first time."""
    case = item.case
    question = SutCase(case.case_id, case.task_class, "", item.trial)
    try:
        # If the run ends during this, the agent was not started. The line may be in the journal all the same.
        await parts.notices.asking(item)
        with parts.store.parcel_for_sut(case) as parcel:
            produced = await sut.ask_in_box(question, sut_seconds(case, parts.timeout_seconds), parcel)
    except (ModelNotReached, asyncio.CancelledError) as error:
        cause = sut.why_not_counted(question)
        if isinstance(error, ModelNotReached):
            cause = error.message if error.void else None
        if cause is not None:
            parts.notices.voided(item, parts.redactor.detail(cause))
        raise
    if isinstance(produced, SutFault) and produced.void:
        parts.notices.voided(item, parts.redactor.detail(produced.detail))
    return produced


async def _answered(
    parts: TrialParts, case: BenchCase, output: bytes, artifacts: dict[str, str]
) -> tuple[Answer, bool]:
    """Execute the steps of a case, then ask the rubric. Return its answer, and whether that was known."""
    executions: bytes | None = None
    if case.execute:
        executions = await _executed(parts, case, output, artifacts)
        if executions is None:
            return failed("sut.cancelled", parts.stop.reason), False
    judged = Judged(output, executions)
    answer = parts.memory.answer(case, judged)
    if answer is not None:
        return answer, True
    return await _judged(parts, case, judged, artifacts), False


async def _executed(
    parts: TrialParts, case: BenchCase, output: bytes, artifacts: dict[str, str]
) -> bytes | None:
    """Return what came of the steps of a case; None if everything has to stop."""
    executions = parts.memory.executions(case, output)
    if executions is None:
        if parts.executor is None:
            raise RuntimeError(f"case {case.case_id} has steps, and there is no executor")
        executions = await parts.stop.unless_everything_stops(parts.executor.execute(case, output))
        if executions is None:
            return None
        parts.memory.keep_executions(case, output, executions)
    artifacts |= dict([parts.memory.artifact(EXECUTIONS, executions)])
    return executions


async def _judged(parts: TrialParts, case: BenchCase, judged: Judged, artifacts: dict[str, str]) -> Answer:
    run = await parts.stop.unless_everything_stops(_judge(parts, case, judged))
    if run is None:
        return failed("sut.cancelled", parts.stop.reason)
    answer = parts.memory.keep_answer(case, judged, judge(run, parts.task_class, parts.redactor))
    texts = {
        "rubric_stdout": _clean_beginning(parts.redactor, run.stdout, cut=run.stdout_truncated),
        "rubric_stderr": _clean_end(parts.redactor, run.stderr, LIMITS.rubric_stderr_bytes),
    }
    artifacts |= _keep_texts(parts, texts)
    return answer


async def _judge(parts: TrialParts, case: BenchCase, judged: Judged) -> RubricRun:
    return await judge_in_room(parts.store, parts.rubrics, case, judged)


async def judge_in_room(
    store: CaseStore, rubrics: RubricRunner, case: BenchCase, judged: Judged
) -> RubricRun:
    """Run a case's rubric on an output, in a private copy of the case as the rubric runner needs it.

    Raises HarnessFailure if the machine had too little processor time for the rubric.
    """
    with store.parcel_for_rubric(case) if rubrics.wants_parcel else store.for_rubric(case) as room:
        seconds = float(case.rubric_wall_clock_seconds)
        run = await rubrics.run(room, rubric_request(case, judged), seconds)
    if run.starved_with is not None:
        raise HarnessFailure(
            f"the machine gave a rubric {run.starved_with:.1f} s of a processor in {run.wall_seconds:.0f} s,"
            f" and its case has {seconds:.0f} s: this is not a verdict",
            where=f"cases/{case.case_id}",
            hint="other programs use the processor: run the same command again when they have ended, or lower"
            " --concurrency; what was measured is kept",
        )
    return run


def _keep_produced(parts: TrialParts, produced: Produced) -> dict[str, str]:
    kept = _keep_texts(parts, {"sut_log": produced.log.decode()})
    kept |= _keep_left_behind(parts, produced)
    if produced.work is not None:
        kept |= _keep_work(parts, produced.work)
    if isinstance(produced, SutAnswer):
        cleaned = parts.redactor.clean(produced.output.decode()).encode()
        # A cleaned output is not the one that was judged. A re-score must not take it for that one.
        name = "output" if cleaned == produced.output else _REDACTED_OUTPUT
        kept |= dict([parts.memory.artifact(name, cleaned)])
    return kept


def _keep_left_behind(parts: TrialParts, produced: Produced) -> dict[str, str]:
    """Keep the further artefacts of a call: texts without secrets, other bytes only if they hold none."""
    kept: dict[str, str] = {}
    for name, raw in produced.left_behind:
        try:
            content: bytes | None = parts.redactor.clean(raw.decode()).encode()
        except UnicodeDecodeError:
            # Latin-1 reads any bytes, and a secret of plain letters looks the same in it.
            text = raw.decode("latin-1")
            content = raw if parts.redactor.clean(text) == text else None
        if content:
            kept |= dict([parts.memory.artifact(name, content)])
    return kept


def _keep_work(parts: TrialParts, work: KeptWork) -> dict[str, str]:
    clean = parts.redactor.clean
    # Base64 would hide a secret from the redactor, so contents are looked at before they are encoded.
    harmless = {
        digest: b64encode(content).decode()
        for digest, content in work.binaries.items()
        if clean(text := content.decode("latin-1")) == text
    }
    patch = clean(work.patch)
    texts = {
        COLLECTED: clean(work.listing),
        PATCH if patch == work.patch else f"{PATCH}_redacted": patch,
        BINARIES: json.dumps(harmless, sort_keys=True) if harmless else "",
    }
    return _keep_texts(parts, texts)


def _keep_texts(parts: TrialParts, texts: dict[str, str]) -> dict[str, str]:
    return dict(parts.memory.artifact(name, text.encode()) for name, text in texts.items() if text)


def _clean_beginning(redactor: Redactor, raw: bytes, *, cut: bool) -> str:
    text = raw.decode("utf-8", "replace")
    return redactor.clean_head(text) if cut else redactor.clean(text)


def _clean_end(redactor: Redactor, raw: bytes, limit: int) -> str:
    """Clean the end of a stream. If its beginning was cut off, half a secret may be at the cut."""
    text = raw.decode("utf-8", "replace")
    return redactor.clean_tail(text) if len(raw) >= limit else redactor.clean(text)


def cancelled_evidence(case_id: str, trial: int, reason: str) -> TrialEvidence:
    """Return the evidence of a planned trial that never started."""
    return TrialEvidence(
        case_id=case_id, trial=trial, answer=failed("sut.cancelled", reason), cost_usd=None, wall_clock_ms=0
    )
