"""Which system under test was measured, and where a system of that name may run."""

from codegenie.eval.canonical import digest_json
from codegenie.eval.models import SutBoundary, SutIdentity

SUT_ENV = " --sut-env "
"""The text in a spec before each variable that is passed on."""


def identity_digest(identity: SutIdentity) -> str:
    """Hash the identity of the system that was measured."""
    return digest_json("sut-identity.v1", identity.model_dump(mode="json"))


def agent_name(spec: str) -> str:
    """Return the name that was given with --sut: a spec without its variables."""
    return spec.partition(SUT_ENV)[0]


def implied_boundary(spec: str) -> SutBoundary | None:
    """Return where a system under test with this spec runs; None if a Python caller brought it."""
    kind, colon, _ = spec.partition(":")
    if spec in {"null", "oracle"} or (kind == "replay" and colon):
        return "harness"
    if kind in {"python", "command"} and colon:
        return "process"
    return "in-process" if kind == "in-process" and colon else None


def boundary_problem(sut: SutIdentity, boundary: SutBoundary) -> str | None:
    """Return why a system of this name cannot run there: what a run proves depends on where it ran."""
    implied = implied_boundary(sut.spec)
    if boundary == (implied or boundary) and (implied == "harness" or boundary != "harness"):
        return None
    return f"its boundary is {boundary!r}, which is not that of {sut.spec[:80]!r}"
