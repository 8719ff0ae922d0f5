"""The bench on disk against the start of a run: is it the same bench, and does it judge the same."""

from typing import Any

import pytest

from codegenie.eval.gate.evidence import BenchOnDisk
from codegenie.eval.models import RUNNER_CODES, Severity
from tests.support.gate import TIERS, bench, cases, started

RUN = started(20)
WARNED = dict.fromkeys(RUNNER_CODES, Severity.BLOCK) | {"answer.wrong": Severity.WARN}
FIRST_IN_ANOTHER_FAMILY = cases(1)[0].model_copy(update={"family": "another"})


def today(**changes: Any) -> BenchOnDisk:  # noqa: ANN401 - any field
    """Return a bench that differs from the one that was measured."""
    return bench(started(20, **changes))


def test_a_bench_that_did_not_change_is_the_measured_one_and_judges_the_same() -> None:
    assert bench(RUN).measured_by(RUN)
    assert bench(RUN).still_judges(RUN)
    assert bench(RUN).contradiction(RUN) is None


@pytest.mark.parametrize(
    "changed",
    [
        today(rubric_digest="9" * 64),
        today(taxonomy_digest="9" * 64),
        today(cases=(cases(1)[0].model_copy(update={"digest": "9" * 64}), *cases(20)[1:])),
        today(cases=cases(20)[1:]),
    ],
    ids=["rubric", "taxonomy", "bytes of a case", "a case less"],
)
def test_with_another_digest_it_neither_is_the_measured_bench_nor_judges_the_same(
    changed: BenchOnDisk,
) -> None:
    assert not changed.measured_by(RUN)
    assert not changed.still_judges(RUN)


@pytest.mark.parametrize(
    "changed",
    [
        today(cases=cases(21)),
        today(cases=(FIRST_IN_ANOTHER_FAMILY, *cases(20)[1:])),
        today(severities=WARNED),
        today(breakdown_keys=("speed",)),
        today(min_cases_for_promotion=dict.fromkeys(TIERS, 2)),
    ],
    ids=["a case more", "a family", "severities", "breakdown keys", "minimums"],
)
def test_with_the_same_digests_it_judges_the_same_and_need_not_be_the_measured_bench(
    changed: BenchOnDisk,
) -> None:
    assert changed.still_judges(RUN)
    assert not changed.measured_by(RUN)


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        (
            today(cases=(FIRST_IN_ANOTHER_FAMILY, *cases(20)[1:])),
            "case case-000000 has this digest, but the bench describes it differently",
        ),
        (today(severities=WARNED), "the taxonomy with this digest has other severities or keys"),
        (today(breakdown_keys=("speed",)), "the taxonomy with this digest has other severities or keys"),
        (today(severities=WARNED, taxonomy_digest="9" * 64), None),
        (today(min_cases_for_promotion=dict.fromkeys(TIERS, 2)), None),
    ],
    ids=["a family", "severities", "breakdown keys", "another taxonomy", "minimums"],
)
def test_a_start_contradicts_the_bench_only_about_what_has_the_same_digest(
    changed: BenchOnDisk, problem: str | None
) -> None:
    assert changed.contradiction(RUN) == problem
