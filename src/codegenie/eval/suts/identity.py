"""Which system under test was measured, and where a system of that name may run."""

from codegenie.eval.canonical import digest_json
from codegenie.eval.models import SutBoundary, SutIdentity

SUT_ENV = " --sut-env "
"""The text in a spec before each variable that is passed on."""
SUT_MODEL = " --sut-model "
"""The text in a spec before the model of an agent."""
SUT_PYTHON = " --sut-python "
"""The text in a spec before the interpreter of a Python agent."""


def identity_digest(identity: SutIdentity) -> str:
    """Hash the identity of the system that was measured."""
    return digest_json("sut-identity.v1", identity.model_dump(mode="json"))


def agent_name(spec: str) -> str:
    """Return the name that was given with --sut, with its model: a spec without its variables."""
    return spec.partition(SUT_ENV)[0]


OWN_PROCESS: frozenset[SutBoundary] = frozenset({"process", "landlock", "namespace"})
"""Where an agent of the command line can run: in a process of its own, with or without the walls of a box."""


def possible_boundaries(spec: str) -> frozenset[SutBoundary] | None:
    """Return where a system under test with this spec can run; None if a Python caller brought it."""
    kind, colon, _ = spec.partition(":")
    if spec in {"null", "oracle"} or is_replay(spec):
        return frozenset({"harness"})
    if (kind in {"python", "command", "preset"} and colon) or is_agent_file(
        agent_name(spec).partition(SUT_MODEL)[0]
    ):
        return OWN_PROCESS
    return frozenset({"in-process"}) if kind == "in-process" and colon else None


def can_run_in_a_box(spec: str) -> bool:
    """Say whether a spec names an agent of the command line, and not an object or the harness's own."""
    return possible_boundaries(spec) == OWN_PROCESS


def is_replay(spec: str) -> bool:
    """Say whether a spec names a recording, which is replayed."""
    return spec.startswith("replay:")


def is_agent_file(spec: str) -> bool:
    """Say whether a spec is the path of a sut.toml."""
    return spec.endswith(".toml")


def boundary_problem(sut: SutIdentity, boundary: SutBoundary) -> str | None:
    """Return why a system of this name cannot run there: what a run proves depends on where it ran."""
    possible = possible_boundaries(sut.spec)
    if boundary in possible if possible is not None else boundary != "harness":
        return None
    return f"its boundary is {boundary!r}, which is not that of {sut.spec[:80]!r}"
