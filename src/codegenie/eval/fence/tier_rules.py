"""Check whether a bench could ever support the tiers that it declares."""

from collections.abc import Mapping, Sequence

from codegenie.eval.aggregation import UNIT_RULE, units_of
from codegenie.eval.estimators.bounds import clopper_pearson_lower, floor3
from codegenie.eval.fence.findings import Notes, Spot
from codegenie.eval.gate.policy import DEFAULT_HELD_OUT, DEFAULT_THRESHOLDS
from codegenie.eval.models import BenchCase
from codegenie.eval.wording import counted

_LOWEST = next(iter(DEFAULT_THRESHOLDS))


def inspect_counts(notes: Notes, where: Spot, minimums: Mapping[str, int], cases: int) -> None:
    """Compare the number of cases with the registration. A class without cases has a finding of its own."""
    for tier, minimum in sorted(minimums.items()):
        if 0 < cases < minimum:
            notes.add("F040", where, f"asks for {minimum} cases for {tier} and has {cases}")


def inspect_tiers(
    notes: Notes, where: Spot, minimums: Mapping[str, int], cases: Sequence[BenchCase | None]
) -> None:
    """Check the minimum of held-out cases and the units. A case that could not be read counts for the bench.

    There is no policy here, so every tier except the lowest of the usual three counts as above the lowest.
    """
    declared = sorted(tier for tier in minimums if tier != _LOWEST) if cases else []
    known = [case for case in cases if case is not None]
    unread = len(cases) - len(known)
    held_out = sum(case.curation_class == "held-out" for case in known)
    if declared and held_out + unread < DEFAULT_HELD_OUT:
        message = (
            f"declares {', '.join(declared)} with {counted(held_out, 'held-out case')};"
            f" {DEFAULT_HELD_OUT} are needed"
        )
        notes.add("F041", where, message)
    units = len(units_of(known, UNIT_RULE)) + unread
    for tier in declared:
        threshold = DEFAULT_THRESHOLDS.get(tier, 0.0)
        bound = clopper_pearson_lower(units, units)
        if bound < threshold:
            best = f"the most that {counted(units, 'unit')} can certify is {floor3(bound)}"
            notes.add("F042", where, f"{best}; {tier} usually needs {threshold:g}")
