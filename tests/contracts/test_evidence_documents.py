"""The pages on the log and on the gate name what the code has: reasons, settings, fields, kinds and words."""

import re
from pathlib import Path
from typing import get_args

from codegenie.eval import promotion, tiers
from codegenie.eval.cli.show_command import _PARTS
from codegenie.eval.evidence import (
    RECORD_OF_BODY,
    Answer,
    LogRecord,
    TrialEvidence,
)
from codegenie.eval.models import Record
from codegenie.eval.promotion import PromotionVerdict

DOCS = Path(__file__).resolve().parents[2] / "docs" / "reference"
GATE = (DOCS / "gate.md").read_text(encoding="utf-8")
LOG = (DOCS / "log.md").read_text(encoding="utf-8")


def first_cells(text: str, heading: str) -> set[str]:
    """Return every name in backticks that begins a row of a section."""
    section = text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    rows = [line.split(" | ")[0] for line in section.splitlines() if line.startswith("| `")]
    return {name for row in rows for name in re.findall(r"`([^`]+)`", row)}


def unnamed(names: set[str], page: str) -> set[str]:
    return {name for name in names if f"`{name}`" not in page}


def test_every_reason_of_the_gate_has_a_row_and_no_other() -> None:
    source = Path(promotion.__file__).read_text(encoding="utf-8")
    reasons = set(re.findall(r'_reason\(\s*"([a-z_]+)"', source))

    assert len(reasons) > 20
    assert first_cells(GATE, "Reasons") == reasons


def test_every_setting_of_the_policy_has_a_row_and_no_other() -> None:
    assert first_cells(GATE, "Policy file") == tiers._KEYS  # noqa: SLF001 - the page names what is read


def test_every_field_of_a_verdict_and_every_verdict_is_named() -> None:
    verdicts = set(get_args(PromotionVerdict.model_fields["verdict"].annotation))

    assert first_cells(GATE, "What a verdict means") == verdicts
    assert unnamed(set(PromotionVerdict.model_fields), GATE) == set()


def test_every_kind_of_record_and_every_field_of_it_is_named() -> None:
    kinds = {kind.model_fields["kind"].default for kind in RECORD_OF_BODY.values()}
    wanted = {field.alias or name for name, field in LogRecord.model_fields.items()} | {"kind", "body"}

    assert first_cells(LOG, "Records") >= kinds | wanted
    records: list[type[Record]] = [*RECORD_OF_BODY, TrialEvidence, Answer]
    for record in records:
        assert unnamed(set(record.model_fields), LOG) == set(), record


def test_every_word_for_what_is_reused_and_every_kind_of_artefact_is_named() -> None:
    reused = set(get_args(TrialEvidence.model_fields["reused"].annotation))

    assert first_cells(LOG, "Records") >= reused
    assert first_cells(LOG, "Artefacts") == {name for part in _PARTS.values() for name in part}


def test_everything_that_verify_may_leave_unchecked_is_named() -> None:
    source = (Path(promotion.__file__).parent / "verification.py").read_text(encoding="utf-8")

    words = set(re.findall(r'missing\.append\("(\w+)"\)', source))

    assert first_cells(LOG, "What verify checks") == words | {"not_checked"}
