"""Which system under test was measured, and where a system of that name may run."""

from codegenie.eval.canonical import digest_json
from codegenie.eval.models import SutBoundary, SutIdentity

SUT_ENV = " --sut-env "
"""Stands in a spec before each variable that was handed over."""


def identity_digest(identity: SutIdentity) -> str:
    """Hash which system was measured."""
    return digest_json("sut-identity.v1", identity.model_dump(mode="json"))


def agent_name(spec: str) -> str:
    """Return what was named with --sut: a spec without the variables that were handed over."""
    return spec.partition(SUT_ENV)[0]


def implied_boundary(spec: str) -> SutBoundary | None:
    """Return where a system under test with this spec runs; None for one that an embedder brought."""
    kind, colon, _ = spec.partition(":")
    if spec in {"null", "oracle"} or (kind == "replay" and colon):
        return "harness"
    if kind in {"python", "command"} and colon:
        return "process"
    return "in-process" if kind == "in-process" and colon else None


def boundary_problem(sut: SutIdentity, boundary: SutBoundary) -> str | None:
    """Say why a system of this name cannot run there: whether a run is evidence hangs on where it ran."""
    implied = implied_boundary(sut.spec)
    if boundary == (implied or boundary) and (implied == "harness" or boundary != "harness"):
        return None
    return f"its boundary is {boundary!r}, which is not that of {sut.spec[:80]!r}"
