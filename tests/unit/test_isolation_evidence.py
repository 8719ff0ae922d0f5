"""A proof of isolation as a record: when it holds, and that no class lends its evidence to another."""

import pytest

from codegenie.eval.evidence import REQUIRED_PROBES, IsolationProof, ProbeResult, start_digest
from codegenie.eval.models import IsolationClass
from tests.gate_workshop import proof, started

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
    disproved = IsolationProof(isolation_class=isolation_class, kernel="6.18", probes=probes)

    assert (without.holds, without.unproved) == (False, (name,))
    assert (disproved.holds, disproved.unproved) == (False, (name,))


def test_the_proof_of_a_weaker_class_does_not_prove_a_stronger_one() -> None:
    claimed = proof("landlock").model_copy(update={"isolation_class": "namespace"})

    assert set(claimed.unproved) == REQUIRED_PROBES["namespace"] - REQUIRED_PROBES["landlock"]


def test_a_run_is_resumed_in_its_own_class_only_and_on_any_kernel() -> None:
    digests = {each: start_digest(started(3, isolation=proof(each))) for each in CLASSES}
    other_kernel = proof("namespace").model_copy(update={"kernel": "6.19", "landlock_abi": 8})

    assert len(set(digests.values())) == len(CLASSES)
    assert start_digest(started(3, isolation=other_kernel)) == digests["namespace"]
