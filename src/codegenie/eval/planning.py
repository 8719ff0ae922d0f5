"""Build a RunPlan from a task class, cases and options, without reading a clock or the disk."""

import fnmatch
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Self

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

    def unmatched(self, selected: Collection[str]) -> list[str]:
        """Return the globs that match none of these cases."""
        return [glob for glob in self.globs if not fnmatch.filter(selected, glob)]


CaseFilter = str | Collection[str] | Callable[[str], bool] | None


def any_of(globs: Collection[str]) -> CaseFilter:
    """Return a filter for the cases that match any of several globs; no glob means all cases."""
    if len(globs) <= 1:
        return next(iter(globs), None)
    return GlobFilter(tuple(globs))


def _all_known(_selected: Collection[str]) -> list[str]:
    return []


@dataclass(frozen=True, slots=True)
class CaseSelection:
    """What a filter means: which cases it wants, how it is described, and what of it matches no case."""

    wants: Callable[[str], bool]
    text: str | None
    unmatched: Callable[[Collection[str]], list[str]] = _all_known

    @classmethod
    def by(cls, case_filter: CaseFilter) -> Self:
        """Read a glob, several globs, a collection of ids, a predicate, or None for all cases."""
        if case_filter is None:
            return cls(lambda _case_id: True, None)
        if isinstance(case_filter, str):
            # If a single glob matches no case, the plan is empty, and its refusal names the glob.
            return cls(GlobFilter((case_filter,)), case_filter)
        if isinstance(case_filter, GlobFilter):
            return cls(case_filter, ",".join(case_filter.globs), case_filter.unmatched)
        if callable(case_filter):
            return cls(case_filter, "predicate")
        ids = frozenset(case_filter)
        return cls(ids.__contains__, ",".join(sorted(case_filter)), lambda known: sorted(ids - set(known)))

    def describe(self) -> str | None:
        """Describe in one line what the user selected, for the report. The plan names the cases."""
        most = LIMITS.text_characters
        if self.text is None or len(self.text) <= most:
            return self.text
        return self.text[: most - 1] + "…"

    def check(self, selected: Collection[str]) -> None:
        """Raise NoCaseMatches if an id or one of several globs matches nothing: a typo shrinks no run."""
        for unknown in self.unmatched(selected):
            raise NoCaseMatches(
                f"there is no case {unknown!r}", hint="`codegenie eval digest --json` names the cases"
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
