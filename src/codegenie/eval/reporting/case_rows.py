"""Every planned trial of a run in one row, filtered, as a document and as a table of 80 columns."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Self, get_args

from codegenie.eval.aggregation import TrialKey, fault_of
from codegenie.eval.errors import SettingsInvalid
from codegenie.eval.estimators.bounds import floor3
from codegenie.eval.evidence import TrialEvidence, score_of
from codegenie.eval.models import RUNNER_CODES, BenchCase, Fault, Severity, TrialScore
from codegenie.eval.wording import counted, duration, short_count

Outcome = Literal["passed", "failed", "sut-fault", "bench-fault", "not-measured", "open"]
"""What came of one planned trial; `open`: it has no outcome yet."""

OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
_FAULTS: Mapping[Fault, Outcome] = {
    Fault.SUT: "sut-fault",
    Fault.BENCH: "bench-fault",
    Fault.INFRASTRUCTURE: "not-measured",
}
_COLUMNS = 80
_HINTED = 20


@dataclass(frozen=True, slots=True)
class CaseRow:
    """One planned trial, with its evidence if it was measured."""

    case: BenchCase
    trial: int
    outcome: Outcome
    evidence: TrialEvidence | None = None
    score: TrialScore | None = None

    @classmethod
    def of(cls, case: BenchCase, trial: int, evidence: TrialEvidence | None) -> Self:
        """Return the row of one planned trial."""
        if evidence is None:
            return cls(case, trial, "open")
        score = score_of(evidence)
        fault = fault_of(score)
        judged: Outcome = "passed" if score.passed else "failed"
        return cls(case, trial, judged if fault is None else _FAULTS[fault], evidence, score)

    @property
    def codes(self) -> list[str]:
        """Return the codes of its failures, those that block first, each once."""
        modes = () if self.score is None else self.score.failure_modes
        ordered = sorted(modes, key=lambda mode: mode.severity is not Severity.BLOCK)
        return list(dict.fromkeys(mode.code for mode in ordered))

    def document(self) -> dict[str, object]:
        """Return the row for a JSON document: null where something is unknown."""
        measured, usage = self.evidence, None if self.evidence is None else self.evidence.usage
        return {
            "case_id": self.case.case_id,
            "trial": self.trial,
            "family": self.case.family,
            "difficulty": self.case.difficulty,
            "outcome": self.outcome,
            "score": None if self.score is None else self.score.score,
            "wall_clock_ms": None if measured is None else measured.wall_clock_ms,
            "cost_usd": None if measured is None else measured.cost_usd,
            "cost_source": None if measured is None else measured.cost_source,
            "input_tokens": None if usage is None else usage.input_tokens,
            "cached_tokens": None if usage is None else usage.cached_tokens,
            "output_tokens": None if usage is None else usage.output_tokens,
            "failure_codes": self.codes,
        }


def case_rows(
    cases: Iterable[BenchCase], trials: int, measured: Mapping[TrialKey, TrialEvidence]
) -> list[CaseRow]:
    """Return a row for every planned trial, in planned order."""
    return [
        CaseRow.of(case, trial, measured.get((case.case_id, trial)))
        for case in cases
        for trial in range(trials)
    ]


@dataclass(frozen=True, slots=True)
class RowFilter:
    """Which rows are wanted: for each kind any of the given values, and all if none is given."""

    outcome: Sequence[str] = ()
    family: Sequence[str] = ()
    difficulty: Sequence[str] = ()
    code: Sequence[str] = ()

    def check(self, cases: Iterable[BenchCase], taxonomy: Iterable[str]) -> None:
        """Raise SettingsInvalid for a value that no case of the run can have: a typo must not look empty."""
        known: dict[str, set[str]] = {
            "outcome": set(OUTCOMES),
            "family": {case.family for case in cases},
            "difficulty": set(get_args(BenchCase.model_fields["difficulty"].annotation)),
            "code": {*taxonomy, *RUNNER_CODES},
        }
        for kind, values in known.items():
            for value in getattr(self, kind):
                if value not in values:
                    raise SettingsInvalid(
                        f"--{kind}: the run has no {kind} {value!a}", hint=f"it has {_some(sorted(values))}"
                    )

    def wants(self, row: CaseRow) -> bool:
        """Say whether a row is wanted."""
        return (
            (not self.outcome or row.outcome in self.outcome)
            and (not self.family or row.case.family in self.family)
            and (not self.difficulty or row.case.difficulty in self.difficulty)
            and (not self.code or any(code in self.code for code in row.codes))
        )


def _some(values: Sequence[str]) -> str:
    more = f" and {len(values) - _HINTED} more" if len(values) > _HINTED else ""
    return ", ".join(values[:_HINTED]) + more


def render_rows(rows: Sequence[CaseRow], trials_per_case: int) -> list[str]:
    """Return the table, without the columns that are empty in every row."""
    if not rows:
        return ["no trial matches"]
    table = [["case", "outcome", "score", "took", "cost in USD", "tokens in/out", "failure"]]
    table += [_cells(row, trials_per_case) for row in rows]
    shown = [column for column in range(6) if any(cells[column] for cells in table[1:])]
    if not any(cells[-1] for cells in table[1:]):
        table[0][-1] = ""
    widths = [max(len(cells[column]) for cells in table) for column in shown]
    lines = []
    for cells in table:
        fixed = "  ".join(f"{cells[column]:{width}}" for column, width in zip(shown, widths, strict=True))
        lines += _with_failure(fixed, cells[-1])
    return lines


def _with_failure(fixed: str, failure: str) -> list[str]:
    """Put the failure behind the other columns, or below them if the line gets too long."""
    if len(f"{fixed}  {failure}") <= _COLUMNS:
        return [f"{fixed}  {failure}".rstrip()]
    return [fixed.rstrip(), f"    {failure}"]


def _cells(row: CaseRow, trials_per_case: int) -> list[str]:
    name = f"{row.case.case_id}#{row.trial}" if trials_per_case > 1 else row.case.case_id
    if row.evidence is None or row.score is None:
        return [name, row.outcome, "", "", "", "", ""]
    took, usage = duration(row.evidence.wall_clock_ms), row.evidence.usage
    tokens = (
        ""
        if usage is None
        else "/".join("?" if n is None else short_count(n) for n in (usage.input_tokens, usage.output_tokens))
    )
    return [
        name,
        row.outcome,
        floor3(row.score.score),
        took,
        _cost(row.evidence),
        tokens,
        ", ".join(row.codes),
    ]


def _cost(evidence: TrialEvidence) -> str:
    if evidence.cost_usd is None:
        return ""
    return " ".join(filter(None, [f"{evidence.cost_usd:.4f}", evidence.cost_source]))


def render_counts(rows: Sequence[CaseRow], planned: int) -> str:
    """Return how many trials of which outcome are shown."""
    counts = Counter(row.outcome for row in rows)
    parts = ", ".join(f"{counts[outcome]} {outcome}" for outcome in OUTCOMES if counts[outcome])
    return f"{len(rows)} of {counted(planned, 'trial')}" + (f": {parts}" if parts else "")
