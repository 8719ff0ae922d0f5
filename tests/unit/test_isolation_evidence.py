"""A proof of isolation as a record: when it holds, and that no class lends its evidence to another."""

import pytest

from codegenie.eval.canonical import spelled
from codegenie.eval.isolation_proof import REQUIRED_BY_LIST, REQUIRED_PROBES, IsolationProof, ProbeResult
from codegenie.eval.log.records import start_digest
from codegenie.eval.models import IsolationClass
from tests.support.gate import proof, started

CLASSES: tuple[IsolationClass, ...] = ("subprocess", "landlock", "namespace")
REQUIRED = [(each, name) for each in CLASSES for name in sorted(REQUIRED_PROBES[each])]


@pytest.mark.parametrize("isolation_class", CLASSES)
def test_a_proof_holds_when_every_required_probe_was_blocked(isolation_class: IsolationClass) -> None:
    assert proof(isolation_class).holds
    assert proof(isolation_class).unproved == ()


@pytest.mark.parametrize(("isolation_class", "name"), REQUIRED)
def test_a_proof_without_one_of_its_probes_does_not_hold(isolation_class: IsolationClass, name: str) -> None:
    without = proof(isolation_class, missing=name)
    probes = (*proof(isolation_class).probes, ProbeResult(name=name, blocked=False))
    disproved = proof(isolation_class).model_copy(update={"probes": probes})

    assert (without.holds, without.unproved) == (False, (name,))
    assert (disproved.holds, disproved.unproved) == (False, (name,))


def of_the_first_list(isolation_class: IsolationClass) -> IsolationProof:
    """Return a proof as it was written when there was one list."""
    names = sorted(REQUIRED_BY_LIST[1][isolation_class])
    probes = tuple(ProbeResult(name=name, blocked=True) for name in names)
    return IsolationProof(isolation_class=isolation_class, kernel="6.18", probes=probes)


@pytest.mark.parametrize("isolation_class", CLASSES)
def test_a_proof_that_names_no_list_is_held_to_the_first_and_is_spelled_as_it_was(
    isolation_class: IsolationClass,
) -> None:
    old = of_the_first_list(isolation_class)
    names = ["isolation_class", "kernel", "landlock_abi", "probes"]

    assert old.holds
    assert sorted(old.model_dump(mode="json")) == names
    assert IsolationProof.model_validate_json(spelled(old)) == old
    assert sorted(proof(isolation_class).model_dump(mode="json")) == sorted([*names, "probe_list"])


def test_a_proof_of_today_needs_the_longer_list() -> None:
    claimed = of_the_first_list("namespace").model_copy(update={"probe_list": 2})

    assert set(claimed.unproved) == REQUIRED_BY_LIST[2]["namespace"] - REQUIRED_BY_LIST[1]["namespace"]
    assert REQUIRED_BY_LIST[1]["namespace"] < REQUIRED_PROBES["namespace"]


def test_the_first_list_is_what_it_was_when_records_were_written_by_it() -> None:
    numbers = {each: len(names) for each, names in REQUIRED_BY_LIST[1].items()}

    assert numbers == {"subprocess": 0, "landlock": 40, "namespace": 53}


def test_the_proof_of_a_weaker_class_does_not_prove_a_stronger_one() -> None:
    claimed = proof("landlock").model_copy(update={"isolation_class": "namespace"})

    assert set(claimed.unproved) == REQUIRED_PROBES["namespace"] - REQUIRED_PROBES["landlock"]


def test_a_run_is_resumed_in_its_own_class_only_and_on_any_kernel() -> None:
    digests = {each: start_digest(started(3, isolation=proof(each))) for each in CLASSES}
    other_kernel = proof("namespace").model_copy(update={"kernel": "6.19", "landlock_abi": 8})

    assert len(set(digests.values())) == len(CLASSES)
    assert start_digest(started(3, isolation=other_kernel)) == digests["namespace"]
