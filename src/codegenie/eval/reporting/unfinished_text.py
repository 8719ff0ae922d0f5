"""A run that has not finished, or was abandoned, as lines of text.

It has no mean and no bounds: they would be computed from the trials that happened to come first.
"""

from collections import Counter
from collections.abc import Iterator

from codegenie.eval.accounting import Totals
from codegenie.eval.estimators.bounds import floor3
from codegenie.eval.log.records import RunStarted
from codegenie.eval.log.runs import Measured, RunEntry
from codegenie.eval.reporting.case_rows import CaseRow, case_rows
from codegenie.eval.reporting.usage_text import render_totals
from codegenie.eval.wording import counted

_SHOWN = 20


def title(entry: RunEntry, started: RunStarted) -> str:
    """Return the first line about any run: what was measured, and in which state it is."""
    state = "complete" if entry.state == "finished" else f"INCOMPLETE ({entry.state})"
    if not entry.whole:
        of = counted(started.selection.available_cases, "case")
        state += f", PARTIAL ({len(started.cases)} of {of})"
    return f"{entry.task_class} · {started.sut.spec} · run {entry.run_id} · {state}"


def next_steps(entry: RunEntry) -> list[str]:
    """Return what a user can do about a run that has no finish; nothing for a finished one."""
    if entry.state == "finished":
        return []
    if entry.state == "abandoned":
        return ["it counts as a failed look; `codegenie eval run` measures again"]
    return [
        "if it is not under way, the same command resumes it, without --no-cache",
        "`codegenie eval abandon RUN --because TEXT` closes it as a failed run",
    ]


def unfinished_document(entry: RunEntry, started: RunStarted, measured: Measured) -> dict[str, object] | None:
    """Return what a JSON document says about a run without a finish; None for a finished one."""
    if entry.state == "finished":
        return None
    written_at = measured.written_at
    return {
        "planned_trials": len(started.cases) * started.trials,
        "measured_trials": len(measured.trials),
        "waiting_trials": measured.waiting,
        "written_at": None if written_at is None else written_at.isoformat(),
        "because": entry.abandoned,
        "notes": list(measured.notes),
        "next": next_steps(entry),
    }


def render_unfinished(
    entry: RunEntry, started: RunStarted, measured: Measured, totals: Totals
) -> Iterator[str]:
    """Yield what a run has measured so far, the cases that did not pass, and what to do next."""
    yield title(entry, started)
    if entry.abandoned is not None:
        yield f"abandoned        {entry.abandoned}"
    planned = counted(len(started.cases) * started.trials, "trial")
    waiting = f" · asked for {measured.waiting} more, without an outcome" if measured.waiting else ""
    yield f"measured         {len(measured.trials)} of {planned}{waiting}"
    rows = [
        row for row in case_rows(started.cases, started.trials, measured.trials) if row.evidence is not None
    ]
    if rows:
        counts = Counter(row.outcome for row in rows)
        yield f"so far           {' · '.join(f'{count} {name}' for name, count in sorted(counts.items()))}"
    if measured.written_at is not None:
        yield f"last line        {measured.written_at:%Y-%m-%d %H:%M:%S} UTC, in its journal"
    yield from render_totals(totals, started.trials)
    yield from _missed([row for row in rows if row.outcome != "passed"])
    yield from (f"note             {note}" for note in measured.notes)
    yield from (f"next             {step}" for step in next_steps(entry))


def _missed(rows: list[CaseRow]) -> Iterator[str]:
    if rows:
        yield f"not passed       {counted(len(rows), 'trial')}"
    for row in rows[:_SHOWN]:
        score = "" if row.score is None else floor3(row.score.score)
        yield f"  {row.case.case_id}#{row.trial}  {score}  {', '.join(row.codes)}".rstrip()
    if len(rows) > _SHOWN:
        yield f"  … and {len(rows) - _SHOWN} more; `codegenie eval cases` lists them all"
