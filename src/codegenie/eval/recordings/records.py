"""The format of a recording: an index, and one file for each trial, named by the hash of its bytes.

The index carries the digest of its own content, and the content names every file by its hash. So one digest
stands for the whole recording, and a change of any bit of it is found.
"""

import re
from typing import Annotated, Literal, Self

from blake3 import blake3
from pydantic import (
    AfterValidator,
    Field,
    PlainValidator,
    StringConstraints,
    ValidationError,
    model_validator,
)

from codegenie.eval.canonical import digest_json, spelled
from codegenie.eval.decoding import decode_json
from codegenie.eval.errors import DecodingRefused
from codegenie.eval.evidence import Account
from codegenie.eval.limits import LIMITS
from codegenie.eval.models import (
    Cost,
    Detail,
    Digest,
    FrozenMap,
    Identifier,
    Record,
    SutBoundary,
    SutIdentity,
    SutNetwork,
    Text,
    is_nothing,
)

INDEX = "recording.json"
"""The name of the index."""
OUTPUTS = "outputs"
"""The directory beside the index that holds one file for each trial."""

# The largest run has 119,817 trials, and each takes up to 140 bytes of the index.
INDEX_BYTES = 32 * 1024 * 1024
# An output has up to 16 MiB, and as a text in JSON up to twice as much.
FILE_BYTES = 64 * 1024 * 1024
Omitted = Literal["redacted", "not_kept"]
"""Why an output is not in a recording: it held a secret, or the log had no room for it."""
_KEY = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}/[0-9]{1,3}")
_HASH = re.compile(r"[0-9a-f]{64}")


def _json_object(text: str) -> str:
    document = decode_json(text.encode(), LIMITS.sut_output_bytes)
    if not isinstance(document, dict):
        raise DecodingRefused("its output is not a JSON object")
    return text


def _named_by_hash(given: object) -> dict[str, str]:
    """Check all items at once: an error of pydantic for each of them would take gigabytes."""
    if not isinstance(given, dict) or not all(
        isinstance(key, str)
        and isinstance(value, str)
        and _KEY.fullmatch(key) is not None
        and _HASH.fullmatch(value) is not None
        for key, value in given.items()
    ):
        raise ValueError("it is not a table from `case/trial` to a hash")
    return FrozenMap(given)


class RecordedFault(Record):
    """How a system under test failed."""

    code: Literal["sut.exception", "sut.timeout"]
    detail: Detail


class RecordedTrial(Account):
    """What a system under test did in one trial: its output, or its fault, or why neither was kept."""

    schema_id: Annotated[Literal["codegenie.eval.recorded-trial/1"], Field(alias="schema")] = (
        "codegenie.eval.recorded-trial/1"
    )
    task_class: Identifier
    case_id: Identifier
    trial: Annotated[int, Field(ge=0, lt=LIMITS.trials)]
    # An output answers what was asked: a replay compares the input, and only tells about the case.
    input_digest: Digest
    case_digest: Digest
    # The exact text that the rubric got: a rubric may see the order of its keys.
    output: Annotated[str, AfterValidator(_json_object)] | None = None
    fault: RecordedFault | None = None
    omitted: Omitted | None = None
    # What it cost and took then. A replay costs nothing.
    cost_usd: Cost | None
    wall_clock_ms: Annotated[int, Field(ge=0)]

    @model_validator(mode="after")
    def _says_one_thing(self) -> Self:
        if [self.output, self.fault, self.omitted].count(None) != 2:  # noqa: PLR2004 - all but one of three
            raise ValueError("it has exactly one of output, fault and omitted")
        return self


class Recording(Record):
    """The index of a recording: what was measured, and the hash of each trial's file."""

    schema_id: Annotated[Literal["codegenie.eval.recording/1"], Field(alias="schema")] = (
        "codegenie.eval.recording/1"
    )
    task_class: Identifier
    # The run that recorded, and the digest of all that decided it: only that run may go on with it.
    run_id: Annotated[str, StringConstraints(pattern=r"^[0-9A-Za-z-]{1,64}$")]
    start: Digest
    finished: bool = False
    harness_version: Text
    sut: SutIdentity
    sut_boundary: SutBoundary
    sut_network: Annotated[SutNetwork | None, Field(exclude_if=is_nothing)] = None
    sut_upstream: Annotated[Text | None, Field(exclude_if=is_nothing)] = None
    trials: Annotated[int, Field(ge=1, le=LIMITS.trials)]
    outputs: Annotated[dict[str, str], PlainValidator(_named_by_hash)] = Field(default_factory=FrozenMap)


class _Index(Record):
    """The file of the index: its content, and the digest of that."""

    digest: Digest
    recording: Recording


def trial_key(case_id: str, trial: int) -> str:
    """Return the name of a trial in the index."""
    return f"{case_id}/{trial}"


def file_name(digest: str) -> str:
    """Return the name of the file with this hash."""
    return f"{digest}.json"


def recording_digest(recording: Recording) -> str:
    """Return the digest that stands for the whole recording."""
    return digest_json("recording.v1", recording.model_dump(mode="json"))


def index_bytes(recording: Recording) -> bytes:
    """Return the file of the index."""
    return spelled(_Index(digest=recording_digest(recording), recording=recording)) + b"\n"


def read_index(raw: bytes) -> tuple[Recording, str]:
    """Return a recording and its digest. Raises DecodingRefused if a single bit is not as it was written."""
    decode_json(raw, INDEX_BYTES)
    try:
        index = _Index.model_validate_json(raw)
    except ValidationError as error:
        raise DecodingRefused(_problem(error)) from None
    # There is only one spelling, so a change that a decoder does not see is a change too.
    if spelled(index) + b"\n" != raw or recording_digest(index.recording) != index.digest:
        raise DecodingRefused("it does not match its own digest")
    return index.recording, index.digest


def trial_bytes(trial: RecordedTrial) -> tuple[str, bytes]:
    """Return the hash and the bytes of a trial's file."""
    raw = spelled(trial) + b"\n"
    return blake3(raw).hexdigest(), raw


def check_hash(raw: bytes, digest: str) -> None:
    """Raise DecodingRefused if the bytes of a file do not have this hash."""
    if blake3(raw).hexdigest() != digest:
        raise DecodingRefused("it does not match the hash in its name")


def read_trial(raw: bytes, digest: str) -> RecordedTrial:
    """Return a trial from the bytes of its file. Raises DecodingRefused if they do not have this hash."""
    check_hash(raw, digest)
    decode_json(raw, FILE_BYTES)
    try:
        return RecordedTrial.model_validate_json(raw)
    except ValidationError as error:
        raise DecodingRefused(_problem(error)) from None


def _problem(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    return f"{ascii('.'.join(map(str, first['loc'])))[1:-1][:80]}: {first['msg']}"
