"""Which agent was measured: one digest over all that the agent is and the harness can see."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from codegenie.eval.canonical import digest_json
from codegenie.eval.sanitising import one_line
from codegenie.eval.suts.agent_spec.records import AgentSpec, NetworkMode

_VERSION_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class IdentityParts:
    """What identifies an agent beside its file. Values of variables are fingerprints, never the values."""

    files_digest: str
    program_digest: str
    version_line: str | None
    model: str | None
    network: NetworkMode
    preset_revision: str | None = None
    passed: Mapping[str, str] = field(default_factory=dict)


def agent_digest(spec: AgentSpec, parts: IdentityParts) -> str:
    """Return the digest of an agent. How long it may take is not a part of what it is."""
    file = spec.model_dump(mode="json")
    file["limits"].pop("seconds")
    upstream = spec.broker.upstream if spec.broker is not None and parts.network == "broker" else None
    return digest_json("agent.v1", {"file": file, "upstream": upstream, **asdict(parts)})


def version_line(output: bytes) -> str | None:
    """Return the first line that a version command printed, made safe to store; None if it printed none."""
    lines = output.decode("utf-8", "replace").splitlines()
    first = next((line for line in lines if line.strip()), "")
    return one_line(first, _VERSION_CHARACTERS) or None
