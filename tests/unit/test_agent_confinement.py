"""The gate asks where the agent ran and what it could reach: a table for all places, networks and tiers."""

import re
from itertools import product
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codegenie.eval.gate.policy import BOUNDARY_ORDER, TierPolicy, read_policy
from codegenie.eval.gate.verdict import PromotionVerdict
from codegenie.eval.models import BenchRunReport, SutBoundary, SutIdentity, SutNetwork
from codegenie.eval.reporting.verdict_text import render_verdict, verdict_document
from tests.support.gate import (
    POLICY,
    TIERS,
    box_proof,
    boxed_in,
    codes,
    evidence,
    judged,
    look,
    report,
    started,
)

UNITS = 59
"""As few as can certify every tier."""

SUTS = {"harness": "oracle", "in-process": "in-process:tests:Agent"}

# Place and network of the agent; then what speaks against bronze, silver, and gold and platinum.
TABLE = """
harness    -       no_agent    no_agent      no_agent
harness    none    no_agent    no_agent      no_agent
harness    broker  no_agent    no_agent      no_agent
harness    host    no_agent    no_agent      no_agent
in-process -       in_process  in_process    in_process
in-process none    in_process  in_process    in_process
in-process broker  in_process  in_process    in_process
in-process host    in_process  in_process    in_process
process    -       -           sut_boundary  sut_boundary,sut_network
process    none    -           sut_boundary  sut_boundary,sut_network
process    broker  -           sut_boundary  sut_boundary,sut_network
process    host    -           sut_boundary  sut_boundary,sut_network
landlock   -       unproved    unproved      unproved,sut_boundary,sut_network
landlock   none    -           -             sut_boundary
landlock   broker  -           -             sut_boundary
landlock   host    -           -             sut_boundary,sut_network
namespace  -       unproved    unproved      unproved,sut_network
namespace  none    -           -             -
namespace  broker  -           -             -
namespace  host    -           -             sut_network
"""
WORDS = {"unproved": "unproved_sut_isolation"}
Place = tuple[SutBoundary, SutNetwork | None]


def _split(cell: str) -> set[str]:
    return set() if cell == "-" else {WORDS.get(word, word) for word in cell.split(",")}


def _rows() -> dict[tuple[str, str | None], list[set[str]]]:
    rows = [line.split() for line in TABLE.strip().splitlines()]
    return {
        (boundary, None if network == "-" else network): [_split(cell) for cell in cells]
        for boundary, network, *cells in rows
    }


ROWS = _rows()
PLACES: list[Place] = list(product(get_args(SutBoundary), (None, *get_args(SutNetwork))))


def policy_of(settings: str) -> TierPolicy:
    return read_policy(f"thresholds: {{bronze: 0.5, silver: 0.8, gold: 0.9}}\n{settings}\n".encode(), "it")


def measured(place: Place, policy: TierPolicy = POLICY) -> BenchRunReport:
    boundary, network = place
    sut = SutIdentity(spec=SUTS.get(boundary, "command:./agent.sh"), digest="5" * 64)
    return report(
        UNITS, UNITS, sut=sut, sut_boundary=boundary, sut_network=network, policy_digest=policy.digest
    )


def verdict_on(place: Place, tier: str, policy: TierPolicy = POLICY) -> PromotionVerdict:
    start = started(
        UNITS,
        policy_digest=policy.digest,
        min_cases_for_promotion=dict.fromkeys(policy.thresholds, 1),
        **boxed_in(*place),
    )
    return judged(evidence(measured(place, policy), started=start), tier, policy)


def sentence(verdict: PromotionVerdict, code: str) -> str:
    return next(each.text for each in verdict.reasons if each.code == code)


def test_the_table_has_every_place_and_every_network() -> None:
    assert set(ROWS) == set(PLACES)


@pytest.mark.parametrize("place", PLACES, ids=str)
def test_every_place_network_and_tier_gives_what_the_table_says(place: Place) -> None:
    bronze, silver, gold = ROWS[place]
    for tier, expected in zip(TIERS, (bronze, silver, gold, gold), strict=True):
        verdict = verdict_on(place, tier)

        assert codes(verdict) == expected, tier
        assert verdict.verdict == ("insufficient" if expected else "sufficient")
        assert (verdict.sut_boundary, verdict.sut_network) == place


def test_a_reason_says_what_to_do_in_text_and_in_json() -> None:
    verdict = verdict_on(("process", None), "gold")
    document = verdict_document(verdict)

    assert "--sut-isolation namespace" in sentence(verdict, "sut_boundary")
    assert "as a plain process; gold needs a box of class namespace:" in sentence(verdict, "sut_boundary")
    assert "--sut-network none or broker" in sentence(verdict, "sut_network")
    assert [each["code"] for each in document["reason_records"]] == ["sut_boundary", "sut_network"]
    assert (document["sut_boundary"], document["sut_network"]) == ("process", None)
    assert [line for line in render_verdict(verdict) if re.match(r"  sut_(boundary|network): ", line)]


def test_a_box_that_is_too_weak_and_every_class_that_would_do_are_named() -> None:
    silver = sentence(verdict_on(("process", "none"), "silver"), "sut_boundary")
    gold = sentence(verdict_on(("landlock", "none"), "gold"), "sut_boundary")

    assert "silver needs a box of class landlock or namespace" in silver
    assert "ran in a box of class landlock; gold needs a box of class namespace" in gold


@pytest.mark.parametrize(
    "proof",
    [
        None,
        box_proof("landlock"),
        box_proof("namespace", "broker"),
        box_proof("namespace", "none", missing="secret-file"),
    ],
    ids=["no proof", "of another class", "of another network", "without a probe"],
)
def test_walls_that_no_proof_shows_are_not_evidence_for_any_tier(proof: object) -> None:
    of = evidence(measured(("namespace", "none")), started=started(UNITS, sut_isolation=proof))

    assert [codes(judged(of, tier)) for tier in TIERS] == [{"unproved_sut_isolation"}] * len(TIERS)


@pytest.mark.parametrize(("elsewhere", "against"), [("process", {"reused"}), ("namespace", set())])
def test_outputs_from_a_store_need_a_run_that_asked_the_agent_in_the_same_place(
    elsewhere: SutBoundary, against: set[str]
) -> None:
    ran = measured(("namespace", "none"))
    asked = look(measured((elsewhere, "none")))

    assert codes(judged(evidence(ran, look=look(ran, reused=UNITS), other_looks=(asked,)))) == against


def test_a_policy_may_ask_for_less_and_the_verdict_then_says_so() -> None:
    lowered = policy_of("minimum_sut_boundary: {silver: process}")
    verdict = verdict_on(("process", None), "silver", lowered)
    note = (
        "this policy lets the agent run in process for silver (minimum_sut_boundary); the default is landlock"
    )

    assert (verdict.verdict, verdict.notes[0]) == ("sufficient", note)
    assert f"  {note}" in render_verdict(verdict)
    assert note in verdict_document(verdict)["notes"]
    # Also where it made no difference, and not for the other tiers or a policy that asks for more.
    assert note in verdict_on(("namespace", "none"), "silver", lowered).notes
    stricter = policy_of("minimum_sut_boundary: {bronze: namespace, silver: namespace}")
    for tier, policy in (("bronze", lowered), ("gold", lowered), ("silver", POLICY), ("silver", stricter)):
        assert "this policy lets" not in " ".join(verdict_on(("namespace", "none"), tier, policy).notes)


def test_a_policy_may_ask_for_more() -> None:
    stricter = policy_of("minimum_sut_boundary: {bronze: namespace}")

    assert codes(verdict_on(("landlock", "none"), "bronze", stricter)) == {"sut_boundary"}
    assert verdict_on(("namespace", "host"), "bronze", stricter).verdict == "sufficient"


@given(
    st.sampled_from(PLACES),
    st.permutations(["bronze", "silver", "gold", "platinum"]),
    st.integers(1, 4),
    st.dictionaries(
        st.sampled_from(["bronze", "silver", "gold", "platinum"]), st.sampled_from(BOUNDARY_ORDER)
    ),
)
def test_gold_never_takes_the_network_of_the_host_and_silver_no_process_that_no_policy_allows(
    place: Place, names: list[str], count: int, minimums: dict[str, str]
) -> None:
    tiers = names[:count]
    thresholds = ", ".join(f"{name}: {0.5 + number / 10}" for number, name in enumerate(tiers))
    given_minimums = {name: least for name, least in minimums.items() if name in tiers}
    settings = ", ".join(f"{name}: {least}" for name, least in given_minimums.items())
    policy = read_policy(
        f"thresholds: {{{thresholds}}}\nminimum_sut_boundary: {{{settings}}}\n".encode(), "it"
    )
    boundary, network = place
    host = boundary == "process" or network not in {"none", "broker"}
    sufficient = {tier for tier in tiers if verdict_on(place, tier, policy).verdict == "sufficient"}

    if host:
        assert not sufficient & {"gold", *tiers[2:]}
    if boundary == "process":
        assert not {tier for tier in sufficient & {"silver", *tiers[1:]} if tier not in given_minimums}
    if boundary in {"harness", "in-process"}:
        assert not sufficient
    if place in {("namespace", "none"), ("namespace", "broker")}:
        assert sufficient == set(tiers)
