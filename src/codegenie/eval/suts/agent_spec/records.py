"""The records of a sut.toml: closed, strict, and each value within its cap. `reading` makes them from bytes.

A text keeps its placeholders here. What depends on two values, or on the machine, is checked in `checks`.
"""

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, ConfigDict, Field, StringConstraints, model_validator

from codegenie.eval.limits import KIB, LIMITS, MIB
from codegenie.eval.models import FrozenMap, Record

VARIABLE_PATTERN = r"^[A-Za-z_][A-Za-z0-9_]{0,127}$"
PRINTABLE_LINE = r"^[^\x00-\x1f\x7f]*$"
GIB = 1024 * MIB

AgentName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9-]{0,63}$")]
Variable = Annotated[str, StringConstraints(pattern=VARIABLE_PATTERN)]
# The kernel takes no NUL in an argument, a variable or a path.
Argument = Annotated[str, StringConstraints(max_length=8 * KIB, pattern=r"^[^\x00]*$")]
Path = Annotated[
    str, StringConstraints(min_length=1, max_length=LIMITS.path_characters, pattern=PRINTABLE_LINE)
]
Line = Annotated[str, StringConstraints(min_length=1, max_length=256, pattern=PRINTABLE_LINE)]
Price = Annotated[float, Field(ge=0.0, le=1e6)]
NetworkMode = Literal["none", "broker", "host"]
OutputFormat = Literal["text", "json", "jsonl", "file"]
Frozen = AfterValidator(FrozenMap)


class Table(Record):
    """A table of the file. A key has one name: those of our fields are not keys beside it."""

    model_config = ConfigDict(validate_by_name=False, validate_by_alias=True)


class EnvironmentTable(Table):
    """`[environment]`: variables of the agent beside those that every agent has."""

    assigned: Annotated[dict[Variable, Argument], Frozen] = Field(
        default_factory=dict, alias="set", max_length=64
    )
    passed: tuple[Variable, ...] = Field(default=(), alias="pass", max_length=64)


class HomeFile(Table):
    """One file of the private home: its text, or a file that the user hands over."""

    text: Annotated[str, StringConstraints(max_length=16 * KIB)] | None = None
    source: Path | None = Field(default=None, alias="from")

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.text is None) == (self.source is None):
            raise ValueError("give either text or from")
        return self


class NetworkTable(Table):
    """`[network]`."""

    mode: NetworkMode = "none"


class Credential(Table):
    """Where the broker finds the key, and how it sends it."""

    env: Variable
    header: Annotated[str, StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9-]{0,63}$")]
    format: Annotated[str, StringConstraints(max_length=64, pattern=r"^[ -z|~]*\{\}[ -z|~]*$")] = "{}"


class Prices(Table):
    """USD for a million tokens."""

    input: Price
    cached: Price | None = None
    output: Price


class BrokerTable(Table):
    """`[broker]`: the one upstream that the agent may talk to, and what it may ask there."""

    upstream: Line
    credential: Credential
    url_env: Annotated[dict[Variable, Argument], Frozen] = Field(default_factory=dict, max_length=16)
    paths: tuple[Line, ...] = Field(min_length=1, max_length=64)
    models: tuple[Line, ...] = Field(default=(), max_length=64)
    server_tools: bool = False
    max_requests: int = Field(default=2000, ge=1, le=1_000_000)
    prices: Prices | None = None


class LimitsTable(Table):
    """`[limits]` of one case."""

    seconds: float = Field(default=1800.0, gt=0.0, le=7 * 86_400)
    grace_seconds: float = Field(default=5.0, ge=0.0, le=600.0)
    processes: int = Field(default=512, ge=1, le=100_000)
    process_memory_bytes: int = Field(default=4 * GIB, ge=16 * MIB, le=4096 * GIB)
    memory_total_bytes: int = Field(default=8 * GIB, ge=16 * MIB, le=4096 * GIB)
    workspace_bytes: int = Field(default=1 * GIB, ge=1 * MIB, le=1024 * GIB)
    workspace_entries: int = Field(default=200_000, ge=16, le=100_000_000)
    file_bytes: int = Field(default=2 * GIB, ge=1 * MIB, le=1024 * GIB)
    cost_usd: float | None = Field(default=None, gt=0.0, le=LIMITS.cost_usd)


class WorkspaceTable(Table):
    """`[workspace]`."""

    git: Literal["none", "init"] = "none"
    # At least two characters that are not a star, so that no pattern leaves out all of an agent's work.
    exclude: tuple[
        Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._][A-Za-z0-9_-][A-Za-z0-9._-]{0,61}\*?$")], ...
    ] = Field(default=(), max_length=16)


PLUS = " + "
"""Stands between the places of a number that an agent states in parts."""


class OutputTable(Table):
    """`[output]`: where the agent states what it used."""

    format: OutputFormat = "text"
    file: Path | None = None
    take: Annotated[dict[Line, Line], Frozen] = Field(default_factory=dict, max_length=8)
    over: Literal["last", "sum"] = "last"
    cost_usd: Line | None = None
    input_tokens: Line | None = None
    cached_tokens: Line | None = None
    output_tokens: Line | None = None
    model: Line | None = None


class AgentSpec(Table):
    """A whole sut.toml."""

    # Not a literal, to which true and 1.0 are equal.
    schema_id: int = Field(ge=1, le=1, alias="schema")
    name: AgentName
    command: tuple[Argument, ...] = Field(min_length=1, max_length=256)
    version_command: tuple[Argument, ...] = Field(default=(), max_length=64)
    files: tuple[Path, ...] = Field(default=(), max_length=256)
    readable: tuple[Path, ...] = Field(default=(), max_length=64)
    prompt: Annotated[str, StringConstraints(max_length=16 * KIB, pattern=r"^[^\x00]*$")] = ""
    stdin: Literal["none", "prompt"] = "none"
    accept_exit: tuple[Annotated[int, Field(ge=0, le=255)], ...] = Field(
        default=(0,), min_length=1, max_length=256
    )
    environment: EnvironmentTable = EnvironmentTable()
    home: Annotated[dict[Path, HomeFile], Frozen] = Field(default_factory=dict, max_length=64)
    network: NetworkTable = NetworkTable()
    broker: BrokerTable | None = None
    limits: LimitsTable = LimitsTable()
    workspace: WorkspaceTable = WorkspaceTable()
    output: OutputTable = OutputTable()
