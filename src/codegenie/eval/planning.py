"""Build a RunPlan from a task class, cases and options, without reading a clock or the disk."""

import fnmatch
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from codegenie.eval.canonical import digest_json
from codegenie.eval.errors import NoCaseMatches, SettingsInvalid
from codegenie.eval.limits import LIMITS
from codegenie.eval.models import BenchCase, RunOptions, RunPlan, Selection, TaskClass

DEFAULT_BENCH_ROOT = "bench"
DEFAULT_OUT_DIR = ".codegenie/eval/runs"
# An answer appears in the evidence, in its trial, and in its case if there are several trials. The rest of a
# trial (names, hashes of artefacts, cost and time) takes less than _TRIAL_BYTES.
_COPIES = 3
_TRIAL_BYTES = 1_400
# What a finish record holds besides its trials.
_FINISH_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class GlobFilter:
    """Several globs as one predicate that can also describe itself."""

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
    """Describe in one line what the user selected, for the report. The plan says which cases those are."""
    if case_filter is None:
        return None
    if isinstance(case_filter, str):
        text = case_filter
    elif isinstance(case_filter, GlobFilter):
        text = ",".join(case_filter.globs)
    elif callable(case_filter):
        text = "predicate"
    else:
        text = ",".join(sorted(case_filter))
    most = LIMITS.text_characters
    return text if len(text) <= most else text[: most - 1] + "…"


def check_filter(case_filter: CaseFilter, selected: Collection[str]) -> None:
    """Raise NoCaseMatches if a name or one of several globs matches no case: a typo must not shrink a run."""
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
    """Decide what will be run, with the cases ordered by id.

    Raises NoCaseMatches if there are no cases, and SettingsInvalid if one record cannot hold so many trials.
    """
    if not cases:
        raise NoCaseMatches(
            f"no case of {task_class.name!r} matches {selection.case_filter!r}",
            hint=f"`codegenie eval digest --json` names the {selection.available_cases} cases of the class",
        )
    ordered = tuple(sorted(cases, key=lambda case: case.case_id))
    options = options or RunOptions()
    if answer_room(len(ordered), options.trials) < LIMITS.least_answer_bytes:
        raise SettingsInvalid(
            f"{len(ordered)} cases x {options.trials} trials are more than one record of the log can hold",
            hint=f"it holds {_most_trials()} trials in all: lower --trials, or choose cases with --cases",
        )
    return RunPlan(
        task_class=task_class,
        cases=ordered,
        selection=selection,
        case_set_digest=case_set_digest(ordered),
        options=options,
        out_dir=out_dir or Path(DEFAULT_OUT_DIR),
    )


def answer_room(cases: int, trials: int) -> int:
    """Return the largest weight of one answer with which the run can be recorded, whatever the bench says."""
    share = (LIMITS.record_bytes - _FINISH_BYTES) // (cases * trials)
    return min(LIMITS.answer_bytes, (share - _TRIAL_BYTES) // _COPIES)


def _most_trials() -> int:
    least = _COPIES * LIMITS.least_answer_bytes + _TRIAL_BYTES
    return (LIMITS.record_bytes - _FINISH_BYTES) // least


def plan_digest(plan: RunPlan) -> str:
    """Hash everything that decides what is measured. Speed and storage options are left out."""
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
