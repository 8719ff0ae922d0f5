"""Which cases a new run measures: all, those that match a glob, or those of an earlier run."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from codegenie.eval.errors import NoCaseMatches, SettingsInvalid
from codegenie.eval.log.reading import verify_log
from codegenie.eval.log.run_view import RunView, view_run
from codegenie.eval.planning import CaseFilter, CaseSelection, any_of
from codegenie.eval.reporting.case_rows import case_rows
from codegenie.eval.system.clock import SystemClock
from codegenie.eval.system.folders import resolved


@dataclass(frozen=True, slots=True)
class CaseChoice:
    """What the user said about the cases of a new run."""

    globs: Sequence[str] = ()
    run: str | None = None
    failed: bool = False


@dataclass(frozen=True, slots=True)
class ChosenCases:
    """The filter for the plan, and the full id of the earlier run if the user named it in another way."""

    case_filter: CaseFilter
    run_id: str | None = None


def chosen_cases(choice: CaseChoice, task_class: str, out: str) -> ChosenCases:
    """Read the choice, and the log if the choice names a run.

    Raises NotMeasured if the log has no such run, SettingsInvalid if it is a run of another class, and
    NoCaseMatches if it leaves no case.
    """
    if choice.run is None:
        if choice.failed:
            raise click.UsageError("--failed needs --cases-from RUN")
        return ChosenCases(any_of(choice.globs))
    clock = SystemClock()
    view = view_run(verify_log(resolved(Path(out)), clock, artifacts=False), choice.run, clock)
    run_id = view.entry.run_id
    if view.entry.task_class != task_class:
        raise SettingsInvalid(
            f"--cases-from: run {run_id} is one of {view.entry.task_class!r}, not of {task_class!r}",
            hint=f"`codegenie eval runs {task_class}` lists the runs of this class",
        )
    cases = _matching(
        _failed(view) if choice.failed else [case.case_id for case in view.started.cases], choice
    )
    return ChosenCases(cases, run_id if choice.run != run_id else None)


def _failed(view: RunView) -> list[str]:
    """Return the cases with a measured trial that did not pass. A trial without an outcome has not failed."""
    rows = case_rows(view.started.cases, view.started.trials, view.measured.trials)
    failed = list(dict.fromkeys(row.case.case_id for row in rows if row.outcome not in {"passed", "open"}))
    if not failed:
        raise NoCaseMatches(
            f"no case of run {view.entry.run_id} failed",
            hint=f"`codegenie eval cases {view.entry.run_id}` lists what came of its cases; without --failed"
            " all of them are measured",
        )
    return failed


def _matching(cases: Sequence[str], choice: CaseChoice) -> Sequence[str]:
    """Return the cases that also match a glob, if there is any. Each glob has to match."""
    wanted = CaseSelection.by(any_of(choice.globs))
    kept = [case_id for case_id in cases if wanted.wants(case_id)]
    wanted.check(kept)
    if not kept:
        raise NoCaseMatches(
            f"no case that --cases-from names matches {choice.globs[0]!r}",
            hint=f"`codegenie eval cases {choice.run}` lists the cases of that run",
        )
    return kept
