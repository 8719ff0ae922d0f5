"""Task class, cases and options to a RunPlan: no clock and no disk."""

import fnmatch
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from codegenie.eval.canonical import digest_json
from codegenie.eval.errors import NoCaseMatches
from codegenie.eval.models import BenchCase, RunOptions, RunPlan, Selection, TaskClass

DEFAULT_OUT_DIR = ".codegenie/eval/runs"


@dataclass(frozen=True, slots=True)
class GlobFilter:
    """Several globs as one predicate that can say what it is."""

    globs: tuple[str, ...]

    def __call__(self, case_id: str) -> bool:
        """Say whether any glob matches."""
        return any(fnmatch.fnmatchcase(case_id, glob) for glob in self.globs)


CaseFilter = str | Collection[str] | Callable[[str], bool] | None


def wanted_cases(case_filter: CaseFilter) -> Callable[[str], bool]:
    """Turn a glob, a collection of ids or a predicate into a predicate on case ids."""
    if case_filter is None:
        return lambda _case_id: True
    if callable(case_filter):
        return case_filter
    if isinstance(case_filter, str):
        return lambda case_id: fnmatch.fnmatchcase(case_id, case_filter)
    ids = frozenset(case_filter)
    return ids.__contains__


def any_of(globs: Collection[str]) -> CaseFilter:
    """Return a filter for the cases that match any of several globs; no glob means all cases."""
    if len(globs) <= 1:
        return next(iter(globs), None)
    return GlobFilter(tuple(globs))


def describe_filter(case_filter: CaseFilter) -> str | None:
    """Say in one line what was selected, for the report."""
    if case_filter is None or isinstance(case_filter, str):
        return case_filter
    if isinstance(case_filter, GlobFilter):
        return ",".join(case_filter.globs)
    if callable(case_filter):
        return "predicate"
    return ",".join(sorted(case_filter))


def check_filter(case_filter: CaseFilter, selected: Collection[str]) -> None:
    """Refuse a name or one of several globs that finds no case: a typing error must not shrink a run."""
    unknown: list[str] = []
    if isinstance(case_filter, GlobFilter):
        unknown = [glob for glob in case_filter.globs if not fnmatch.filter(selected, glob)]
    elif not (case_filter is None or isinstance(case_filter, str) or callable(case_filter)):
        unknown = sorted(set(case_filter) - set(selected))
    if unknown:
        raise NoCaseMatches(
            f"there is no case {unknown[0]!r}", hint="`codegenie eval digest --json` names the cases"
        )


def build_plan(
    task_class: TaskClass,
    cases: tuple[BenchCase, ...],
    selection: Selection,
    options: RunOptions | None = None,
    out_dir: Path | None = None,
) -> RunPlan:
    """Fix what will be run. Cases are ordered by id, whatever order they came in."""
    if not cases:
        raise NoCaseMatches(
            f"no case of {task_class.name!r} matches {selection.case_filter!r}",
            hint=f"`codegenie eval digest --json` names the {selection.available_cases} cases of the class",
        )
    ordered = tuple(sorted(cases, key=lambda case: case.case_id))
    return RunPlan(
        task_class=task_class,
        cases=ordered,
        selection=selection,
        case_set_digest=case_set_digest(ordered),
        options=options or RunOptions(),
        out_dir=out_dir or Path(DEFAULT_OUT_DIR),
    )


def plan_digest(plan: RunPlan) -> str:
    """Hash everything that decides what is measured; how fast, and where it is kept, is left out."""
    return digest_json(
        "plan.v1",
        {
            "task_class": plan.task_class.name,
            "rubric": plan.task_class.rubric_digest,
            "taxonomy": plan.task_class.taxonomy_digest,
            "minimums": dict(plan.task_class.min_cases_for_promotion),
            "case_set": plan.case_set_digest,
            "selection": plan.selection.model_dump(mode="json"),
            "trials": plan.options.trials,
            "timeout_seconds": plan.options.timeout_seconds,
            "isolation": plan.options.isolation,
            "policy": plan.options.policy_digest,
        },
    )


def case_set_digest(cases: Collection[BenchCase]) -> str:
    """Hash the ids and digests of a set of cases."""
    return digest_json("case-set.v1", sorted([case.case_id, case.digest] for case in cases))
