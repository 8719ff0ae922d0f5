"""What the boxes of a class must block, and when a record of their proof holds."""

import pytest

from codegenie.eval.isolation_proof import BoxNetwork, BoxProof, ProbeResult, required_of_box
from codegenie.eval.models import IsolationClass


def record(isolation_class: IsolationClass, network: BoxNetwork, *, but: str | None = None) -> BoxProof:
    names = sorted(required_of_box(isolation_class, network))
    probes = tuple(ProbeResult(name=name, blocked=name != but) for name in names)
    return BoxProof(isolation_class=isolation_class, network=network, kernel="6.12", probes=probes)


def test_a_proof_holds_with_everything_blocked_and_not_with_one_less() -> None:
    assert record("namespace", "none").holds
    assert record("landlock", "broker", but="secret-file").unproved == ("secret-file",)


def test_a_probe_that_was_not_tried_or_is_listed_twice_does_not_count_as_blocked() -> None:
    whole = record("landlock", "none")
    twice = (*whole.probes, ProbeResult(name="git-history", blocked=False))

    assert whole.model_copy(update={"probes": whole.probes[1:]}).unproved == (whole.probes[0].name,)
    assert whole.model_copy(update={"probes": twice}).unproved == ("git-history",)


@pytest.mark.parametrize("isolation_class", ["namespace", "landlock"])
def test_only_the_network_of_the_host_leaves_its_listeners_open(isolation_class: IsolationClass) -> None:
    closed, opened = required_of_box(isolation_class, "broker"), required_of_box(isolation_class, "host")

    assert closed == required_of_box(isolation_class, "none")
    assert {"tcp-connect", "udp-send"} <= closed - opened
    assert closed - opened <= {"tcp-connect", "udp-send", "outside-network-namespace"}


def test_namespaces_promise_more_than_landlock_and_no_walls_promise_nothing() -> None:
    more = required_of_box("namespace", "none") - required_of_box("landlock", "none")

    assert {name.removeprefix("outside-") for name in more} == {
        f"{kind}-namespace" for kind in ("user", "mount", "pid", "ipc", "uts", "cgroup", "network")
    }
    assert required_of_box("subprocess", "none") == frozenset()
