"""Measure one case, from system under test to evidence. All access to the outside goes through ports."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from blake3 import blake3

from codegenie.eval.errors import HarnessFailure
from codegenie.eval.evidence import (
    UNRETURNED,
    UNRETURNED_WORDS,
    Account,
    Answer,
    Promised,
    TrialEvidence,
    WorkItem,
)
from codegenie.eval.limits import LIMITS
from codegenie.eval.models import BenchCase, TaskClass
from codegenie.eval.ports import (
    CaseStore,
    Clock,
    Remembered,
    RubricRun,
    RubricRunner,
    SutAnswer,
    SutCase,
    SutFault,
    SutRunner,
    TrialMemory,
    TrialNotices,
)
from codegenie.eval.sanitising import Redactor
from codegenie.eval.stopping import Stop as Stop  # noqa: PLC0414 - its documented path
from codegenie.eval.validation import bounded, failed, judge

Produced = SutAnswer | SutFault
Reused = Literal["none", "output", "score", "both"]
_REDACTED_OUTPUT = "output_redacted"
_SMALL_OUTPUT = 64 * 1024
_NAMED_FILES = 100


@dataclass(frozen=True, slots=True)
class TrialParts:
    """The parts that a trial needs. They are the same for all trials of a run."""

    task_class: TaskClass
    store: CaseStore
    sut: SutRunner
    rubrics: RubricRunner
    memory: TrialMemory
    notices: TrialNotices
    redactor: Redactor
    clock: Clock
    stop: Stop
    timeout_seconds: float | None = None
    answer_bytes: int = LIMITS.answer_bytes


def sut_seconds(case: BenchCase, timeout_seconds: float | None) -> float:
    """Return the deadline of a system under test: that of the case, or `--timeout` if that is less."""
    seconds = float(case.sut_wall_clock_seconds)
    return seconds if timeout_seconds is None else min(seconds, timeout_seconds)


def rubric_request(case: BenchCase, output: bytes) -> bytes:
    """Write the one document that a rubric reads: the case and the output, but not which agent is judged."""
    fields = case.model_dump(mode="json", exclude={"digest", "input_digest"}, exclude_none=True)
    head = {"protocol": 1, "case": fields, "input_dir": "input", "expected_dir": "expected"}
    return json.dumps(head, ensure_ascii=False).encode()[:-1] + b', "harness_output": ' + output + b"}"


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
    if produced is not None and remembered is None and not redacted:
        parts.memory.keep_output(case, trial, produced)
    if isinstance(produced, SutAnswer):
        answer = parts.memory.answer(case, produced.output)
        if answer is None:
            answer = await _judged(parts, case, produced.output, artifacts)
        else:
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
    case, trial = item.case, item.trial
    # Write this down first: from here on the agent was asked, however the run ends.
    await parts.notices.asking(item)
    seconds = sut_seconds(case, parts.timeout_seconds)
    if parts.sut.wants_input:
        with parts.store.for_sut(case) as directory:
            sut_case = SutCase(case.case_id, case.task_class, str(directory / "input"), trial)
            produced = await parts.sut.ask(sut_case, seconds)
            produced = replace(produced, unreturned=_unreturned(parts, case, directory, produced))
    else:
        produced = await parts.sut.ask(SutCase(case.case_id, case.task_class, "", trial), seconds)
    # Free text is cleaned where it comes in. All code after this line sees only the cleaned text.
    log = _clean_end(parts.redactor, produced.log, LIMITS.sut_log_bytes).encode()
    if isinstance(produced, SutFault):
        detail = f"{produced.detail}; {UNRETURNED_WORDS}" if produced.unreturned else produced.detail
        return replace(produced, detail=parts.redactor.detail(detail), log=log)
    return replace(produced, log=log)


def _unreturned(parts: TrialParts, case: BenchCase, directory: Path, produced: Produced) -> tuple[str, ...]:
    """Name the files that an agent changed in its copy if it returned none. For most agents this is empty."""
    returned: object = {}
    if isinstance(produced, SutAnswer):
        # An output larger than this is not empty.
        returned = json.loads(produced.output) if len(produced.output) <= _SMALL_OUTPUT else {"files": True}
    elif not produced.returned_nothing:
        return ()
    if isinstance(returned, dict) and returned.get("files"):
        return ()
    changed, new = parts.store.changed_files(case, directory)
    empty = not isinstance(returned, dict) or not any(returned.values())
    # If the agent has answered otherwise, a new file alone may be something that a tool left behind.
    paths = (*changed, *new) if changed or empty else ()
    return tuple(parts.redactor.detail(path) for path in paths[:_NAMED_FILES])


async def _judged(parts: TrialParts, case: BenchCase, output: bytes, artifacts: dict[str, str]) -> Answer:
    run = await parts.stop.unless_everything_stops(_judge(parts, case, output))
    if run is None:
        return failed("sut.cancelled", parts.stop.reason)
    answer = parts.memory.keep_answer(case, output, judge(run, parts.task_class, parts.redactor))
    texts = {
        "rubric_stdout": _clean_beginning(parts.redactor, run.stdout, cut=run.stdout_truncated),
        "rubric_stderr": _clean_end(parts.redactor, run.stderr, LIMITS.rubric_stderr_bytes),
    }
    artifacts |= _keep_texts(parts, texts)
    return answer


async def _judge(parts: TrialParts, case: BenchCase, output: bytes) -> RubricRun:
    return await judge_in_room(parts.store, parts.rubrics, case, output)


async def judge_in_room(store: CaseStore, rubrics: RubricRunner, case: BenchCase, output: bytes) -> RubricRun:
    """Run a case's rubric on an output, in a private copy of the case as the rubric runner needs it.

    Raises HarnessFailure if the machine had too little processor time for the rubric.
    """
    with store.parcel_for_rubric(case) if rubrics.wants_parcel else store.for_rubric(case) as room:
        seconds = float(case.rubric_wall_clock_seconds)
        run = await rubrics.run(room, rubric_request(case, output), seconds)
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
    if produced.unreturned:
        words = "\n".join([UNRETURNED_WORDS, *produced.unreturned, ""])
        kept |= _keep_texts(parts, {UNRETURNED: words})
    kept |= _keep_left_behind(parts, produced)
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
