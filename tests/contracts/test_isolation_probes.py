"""What a class requires, what the probe tries and what the page says of it are the same list."""

import re
from pathlib import Path

from codegenie.eval.gate.policy import ISOLATION_ORDER
from codegenie.eval.isolation.confinement import landlock
from codegenie.eval.isolation.machine import LEAST_LANDLOCK_ABI
from codegenie.eval.isolation.outside_view import seen_from_outside
from codegenie.eval.isolation.proof import OF_CALLS, OF_ZYGOTES, STRONGEST_FIRST
from codegenie.eval.isolation_proof import CONTROLLED_PROBES, OPEN_PROBES, REQUIRED_PROBES
from tests.hostile.engine.noticing import unnoticed
from tests.hostile.engine.table import read_portfolio
from tests.support.proofs import CALL_PROBE, OUTSIDE, PROBE, TRIED

PAGE = (Path(__file__).resolve().parents[2] / "docs/reference/isolation.md").read_text(encoding="utf-8")


def rows(heading: str) -> dict[str, list[str]]:
    """Return the rows of a section's table by the name in backticks that begins each."""
    section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    cells = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| `")]
    return {name: row[1:] for row in cells for name in re.findall(r"`([^`]+)`", row[0])}


def test_everything_that_a_class_requires_is_tried_or_seen_and_nothing_is_tried_for_nobody() -> None:
    assert REQUIRED_PROBES["namespace"] | OF_ZYGOTES == TRIED | OUTSIDE
    assert set(PROBE["OPEN"]) | {PROBE["RELEASED"]} | OF_CALLS == OPEN_PROBES
    assert set(CALL_PROBE["FREE"]) == OF_CALLS
    assert not TRIED & OPEN_PROBES


def test_what_is_seen_from_outside_is_what_is_required_of_it() -> None:
    assert seen_from_outside(1).keys() == OUTSIDE


def test_every_canary_that_the_control_must_reach_is_tried() -> None:
    assert CONTROLLED_PROBES < TRIED


def test_a_stronger_class_requires_all_that_a_weaker_one_does() -> None:
    assert tuple(reversed(STRONGEST_FIRST)) == ISOLATION_ORDER
    assert REQUIRED_PROBES["subprocess"] < REQUIRED_PROBES["landlock"] < REQUIRED_PROBES["namespace"]


def test_every_probe_has_a_row_that_says_in_which_class_it_is_blocked() -> None:
    said = rows("Probes") | rows("Seen from outside")
    wanted = {
        name: ["yes" if name in REQUIRED_PROBES[each] else "no" for each in ("namespace", "landlock")]
        for name in REQUIRED_PROBES["namespace"]
    }

    wanted |= {name: ["zygote", "zygote"] for name in OF_ZYGOTES}
    assert {name: row[:2] for name, row in said.items()} == wanted


def test_every_canary_of_the_control_is_marked_and_no_other_probe() -> None:
    assert {name for name, row in rows("Probes").items() if row[2] == "yes"} == CONTROLLED_PROBES


def test_everything_that_stays_open_is_named() -> None:
    assert rows("What stays open").keys() == OPEN_PROBES


def test_doctor_and_the_confinement_ask_for_the_same_landlock() -> None:
    assert LEAST_LANDLOCK_ABI["landlock"] == landlock.LEAST_ABI


def test_every_restriction_that_the_proof_cannot_notice_is_one_and_says_why() -> None:
    assert unnoticed().keys() <= read_portfolio().restrictions.keys()
    assert all(unnoticed().values())
    assert f"every restriction of a confined rubric but {len(unnoticed())}," in PAGE


def test_the_page_counts_the_calls_that_are_tried() -> None:
    assert f"one of {len(CALL_PROBE['_UNLISTED'])} calls" in PAGE


def test_every_class_has_a_row() -> None:
    assert list(rows("Classes")) == list(STRONGEST_FIRST)
