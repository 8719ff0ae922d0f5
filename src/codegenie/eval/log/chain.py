"""Link and verify the records of the audit log. Pure functions: bytes in, verdict out, nothing is trusted.

The log is a hash chain. Each record is one JSON file, named by its index. It contains the hash of the file
before it, so a record cannot be changed, removed or inserted without changing all records after it. HEAD
contains the number of records and the hash of the last one.

Verification does this for each file, in the order of its index:
 1. The bytes are the canonical JSON of one record of a known schema.
 2. The index is the next one, and `previous` is the hash of the file before.
 3. The kind is possible after what the log says about the run: it starts once, is resumed only between start
    and end, and finishes or is abandoned once.
 4. For a finish: the evidence covers exactly the plan of the start, every failure is in the taxonomy of the
    start with that severity, and every score, aggregate and bound of the report follows from the answers.
At the end HEAD must agree with the chain.
"""

import datetime as dt
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from blake3 import blake3
from pydantic import TypeAdapter, ValidationError

from codegenie.eval.aggregation import combine_trials, same_number, summarise
from codegenie.eval.decoding import decode_json
from codegenie.eval.errors import ChainTamperDetected, DecodingRefused
from codegenie.eval.evidence import TrialEvidence, answer_problem, score_of
from codegenie.eval.limits import LIMITS
from codegenie.eval.log.records import (
    GENESIS,
    RECORD_OF_BODY,
    RUN_FACTS,
    AbandonedRecord,
    AnyRecord,
    ExamRecord,
    FinishedRecord,
    LogRecord,
    ResumedRecord,
    RunStarted,
    StartedRecord,
    record_pieces,
)
from codegenie.eval.models import (
    RUNNER_CODES,
    BenchRunReport,
    BenchScore,
    Record,
    Severity,
    Summary,
    TrialScore,
)
from codegenie.eval.planning import case_set_digest
from codegenie.eval.suts.identity import boundary_problem, identity_digest

_HEAD = re.compile(rb"(\d{1,8}) ([0-9a-f]{64})\n")
RECORD_BYTES = LIMITS.record_bytes
# File names have eight digits, and so has the count in HEAD.
MOST_RECORDS = 99_999_999
_ADAPTER: TypeAdapter[AnyRecord] = TypeAdapter(AnyRecord)


def record_name(index: int) -> str:
    """Return the file name of a record."""
    return f"{index:08d}.json"


def record_hash(raw: bytes) -> str:
    """Return the hash of the bytes of a record's file."""
    return blake3(raw).hexdigest()


def make_record(body: Record, link: "Link", run_id: str, recorded_at: dt.datetime) -> LogRecord:
    """Make the record that follows the last link of a chain."""
    kind = RECORD_OF_BODY[type(body)]
    fields = {
        "index": link.count,
        "previous": link.head,
        "run_id": run_id,
        "recorded_at": recorded_at,
        "body": body,
    }
    return kind.model_validate(fields)


@dataclass(frozen=True, slots=True)
class Link:
    """The end of a chain: the number of its records and the hash of the last one."""

    count: int = 0
    head: str = GENESIS

    def after(self, raw: bytes) -> "Link":
        """Return the end of the chain once `raw` is its last record."""
        return Link(self.count + 1, record_hash(raw))

    def encode(self) -> bytes:
        """Return the content of HEAD."""
        return f"{self.count} {self.head}\n".encode()


def decode_head(raw: bytes) -> Link:
    """Read HEAD. Raises ChainTamperDetected if it is malformed."""
    match = _HEAD.fullmatch(raw)
    if match is None or str(int(match[1])).encode() != match[1]:
        raise ChainTamperDetected("HEAD is not `<count> <hash>`", where="HEAD", hint=_HINT)
    return Link(int(match[1]), match[2].decode())


_HINT = "keep the log unchanged, compare it with an older copy, and find out what changed it"


def broken(file: str, reason: str) -> ChainTamperDetected:
    """Make the error for the first file that fails verification."""
    return ChainTamperDetected(f"{file} fails verification: {reason}", where=file, hint=_HINT)


# Canonical JSON sorts its keys, so the kind of a record comes after its body, at the end.
_TAIL = re.compile(
    rb'"index":\d+,"kind":"([a-z.]+)","previous":"[0-9a-f]{64}",'
    rb'"recorded_at":"[^"\\]+","run_id":"[0-9A-Za-z-]+","schema":"[a-z0-9./]+"\}'
)
_TAIL_BYTES = 400

# The largest size of each kind of record. Start and finish grow with the cases and trials of a run.
_BYTES_OF_KIND = {
    b"run.started": RECORD_BYTES,
    b"run.resumed": 4_096,
    b"run.abandoned": 4_096,
    b"run.finished": RECORD_BYTES,
}
_SMALL_RECORD_BYTES = 1024 * 1024
# The average of a value with its key and comma, over some thousands, is never shorter than this.
_LEAST_VALUE_BYTES = 8
_FREE_VALUES = 4_096
# The most keys of one object in a record: a taxonomy of 256 KiB has some thousand codes.
_MOST_KEYS = 20_000


def _most_values(file: str, raw: bytes) -> int:
    """Check kind and size, and return how many values such a record can have, before any of them is made."""
    match = next(_TAIL.finditer(raw, max(0, len(raw) - _TAIL_BYTES)), None)
    kind = match[1] if match is not None and match.end() == len(raw) else b""
    most = _BYTES_OF_KIND.get(kind, _SMALL_RECORD_BYTES)
    if len(raw) > most:
        raise broken(file, f"{len(raw)} bytes are more than such a record may have")
    return _FREE_VALUES + min(len(raw) // _LEAST_VALUE_BYTES, RECORD_BYTES // LIMITS.bytes_per_value)


def decode_record(
    file: str, raw: bytes
) -> StartedRecord | ResumedRecord | AbandonedRecord | FinishedRecord | ExamRecord:
    """Read one record strictly (step 1). Raises ChainTamperDetected for bytes that we would not write."""
    try:
        document = decode_json(raw, RECORD_BYTES, values=_most_values(file, raw), keys=_MOST_KEYS)
        # Not validated from the bytes: each error would copy the object around it, and 16 MB cost 6 GB. Not
        # strict either, because JSON has neither tuples nor dates. A value that is coerced gets another
        # canonical form, and is refused below.
        record = _ADAPTER.validate_python(document, strict=False)
    except DecodingRefused as refusal:
        raise broken(file, refusal.message) from None
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, problem["loc"]))
        raise broken(file, f"{place}: {problem['msg']}") from None
    if b"".join(record_pieces(record)) != raw:
        raise broken(file, "it is not in the form that the harness writes")
    return record


@dataclass(slots=True)
class ChainVerifier:
    """Verifies one record after the other in one pass. It holds only the runs that have not ended."""

    link: Link = field(default_factory=Link)
    before: Link = field(default_factory=Link)
    open_runs: dict[str, StartedRecord] = field(default_factory=dict)
    known_runs: set[str] = field(default_factory=set)

    def check(self, file: str, raw: bytes, *, bounds: bool = True) -> LogRecord:
        """Verify the next record (steps 1 to 4), add it to the chain and return it.

        Without `bounds` the bounds of a finish are not recomputed; `check_bounds` can do that later. Raises
        ChainTamperDetected if the record fails verification.
        """
        record = self.judged(file, raw, bounds=bounds)
        self.take(record, raw)
        return record

    def judged(self, file: str, raw: bytes, *, bounds: bool = True) -> LogRecord:
        """Verify the next record and return it, without adding it. Raises ChainTamperDetected."""
        record = decode_record(file, raw)
        if record.index != self.link.count or file != record_name(record.index):
            raise broken(file, f"its index is {record.index}, and {self.link.count} comes next")
        if record.previous != self.link.head:
            raise broken(file, "it does not follow the record before it")
        self._check_order(file, record, bounds=bounds)
        return record

    def take(self, record: LogRecord, raw: bytes) -> None:
        """Add a record that was judged, so that the next one follows it."""
        if isinstance(record, StartedRecord):
            self.known_runs.add(record.run_id)
            self.open_runs[record.run_id] = record
        elif isinstance(record, AbandonedRecord | FinishedRecord):
            del self.open_runs[record.run_id]
        self.before, self.link = self.link, self.link.after(raw)

    def _check_order(self, file: str, record: LogRecord, *, bounds: bool) -> None:
        run_id = record.run_id
        started = self.open_runs.get(run_id)
        if isinstance(record, StartedRecord):
            if run_id in self.known_runs:
                raise broken(file, f"run {run_id} starts twice")
            if run_id == "latest":
                raise broken(file, "the name of its run is reserved for the newest run")
            _check_start(file, record.body)
        elif isinstance(record, ResumedRecord):
            if started is None:
                raise broken(file, f"run {run_id} is resumed but was not under way")
            if record.body.finished_trials > len(started.body.cases) * started.body.trials:
                raise broken(file, "more trials had finished than were planned")
        elif isinstance(record, AbandonedRecord | FinishedRecord):
            if started is None:
                how = "finishes" if isinstance(record, FinishedRecord) else "is abandoned"
                raise broken(file, f"run {run_id} {how} but was not under way")
            if isinstance(record, FinishedRecord):
                _check_times(file, started, record)
                _check_finish(file, started.body, record, bounds=bounds)


def _check_start(file: str, started: RunStarted) -> None:
    """Check that a start does not contradict itself."""
    ids = [case.case_id for case in started.cases]
    if ids != sorted(set(ids)):
        raise broken(file, "its cases are not in order, or one stands twice")
    if any(case.task_class != started.task_class for case in started.cases):
        raise broken(file, "a case belongs to another task class")
    if case_set_digest(started.cases) != started.case_set_digest:
        raise broken(file, "its case set digest is not that of its cases")
    if identity_digest(started.sut) != started.sut_identity_digest:
        raise broken(file, "its identity digest is not that of its system under test")
    # The opposite is allowed: a filter that matches every case is still a filter.
    if started.selection.kind == "all" and len(ids) != started.selection.available_cases:
        raise broken(file, "its selection is not that of its cases")
    proof = started.isolation
    if not proof.holds:
        raise broken(
            file, f"its isolation is {proof.isolation_class!r}, but no probe {proof.unproved[0]!r} proves it"
        )
    problem = boundary_problem(started.sut, started.sut_boundary) or _box_problem(started)
    if problem:
        raise broken(file, problem)
    if any(started.severities.get(code) is not Severity.BLOCK for code in RUNNER_CODES):
        raise broken(file, "a runner-internal code does not block")


def _box_problem(started: RunStarted) -> str | None:
    """Return why the box of the system under test is not what the start says; None if it is."""
    proof, boundary = started.sut_isolation, started.sut_boundary
    claimed = {"process": "subprocess"}.get(boundary, boundary)
    if proof is None:
        walls = boundary in {"landlock", "namespace"} or started.sut_network is not None
        return f"its system under test ran in {boundary!r}, and nothing proves that" if walls else None
    if (proof.isolation_class, proof.network) != (claimed, started.sut_network):
        return f"its system under test ran in {boundary!r}, and the proof is of {proof.isolation_class!r}"
    if proof.holds:
        return None
    return f"its system under test ran in {boundary!r}, but no probe {proof.unproved[0]!r} proves it"


# Clocks are corrected by hours. Only a deliberate change is a matter of days.
_SLACK = dt.timedelta(days=1)


def _check_times(file: str, started: StartedRecord, record: FinishedRecord) -> None:
    """Check a report's times against its records, because the age of evidence depends on them."""
    report, latest = record.body.report, max(started.recorded_at, record.recorded_at)
    # Only differences: adding a day to the last day of the calendar would overflow.
    if started.recorded_at - report.started_at > _SLACK or report.started_at - latest > _SLACK:
        raise broken(file, "started_at is more than a day before or after the records of its run")
    if abs(report.ended_at - record.recorded_at) > _SLACK:
        raise broken(file, "ended_at is more than a day before or after the time of its record")


def check_bounds(file: str, started: RunStarted, record: FinishedRecord) -> None:
    """Recompute the bounds of a finish that was verified without them. Raises ChainTamperDetected."""
    report = record.body.report
    with _typed_arithmetic(file):
        summary = summarise(started.cases, report.per_case, started.unit_rule)
    _check_summary(file, report, summary)


def _check_finish(file: str, started: RunStarted, record: FinishedRecord, *, bounds: bool) -> None:
    """Recompute the whole report from the stored answers (step 4)."""
    report = record.body.report
    for name in RUN_FACTS:
        if getattr(report, name) != getattr(started, name):
            raise broken(file, f"{name} differs from the start of its run")
    if report.run_id != record.run_id or report.isolation_class != started.isolation.isolation_class:
        raise broken(file, "run id or isolation class differs from the start of its run")
    if not _covers_the_plan(started, record.body.trials):
        raise broken(file, "its evidence does not cover the plan exactly")
    with _typed_arithmetic(file):
        per_case = _recomputed(file, started, record.body.trials)
        # Resampling takes most of the time, and these bounds are not needed to judge another run.
        believed = None if bounds else report
        summary = summarise(started.cases, per_case, started.unit_rule, believed=believed)
    if report.per_case != per_case:
        pairs = zip(report.per_case, per_case, strict=False)
        wrong = next((computed[0] for stored, computed in pairs if stored != computed), None)
        what = f"case {wrong}" if wrong else "the list of its cases"
        raise broken(file, f"{what} is not what its answers give")
    _check_summary(file, report, summary)


@contextmanager
def _typed_arithmetic(file: str) -> Iterator[None]:
    try:
        yield
    except (ArithmeticError, ValidationError) as error:
        raise broken(file, f"its answers give no report: {type(error).__name__}") from None


def _check_summary(file: str, report: BenchRunReport, summary: Summary) -> None:
    for name in Summary.model_fields:
        if not same_number(getattr(report, name), getattr(summary, name)):
            raise broken(
                file, f"{name} is {getattr(report, name)}, but the answers give {getattr(summary, name)}"
            )


def _covers_the_plan(started: RunStarted, trials: tuple[TrialEvidence, ...]) -> bool:
    planned = ((case.case_id, trial) for case in started.cases for trial in range(started.trials))
    # Compare the count first: the trials that a forged start plans may not fit into memory.
    return len(trials) == len(started.cases) * started.trials and all(
        (evidence.case_id, evidence.trial) == expected
        for evidence, expected in zip(trials, planned, strict=True)
    )


def _recomputed(
    file: str, started: RunStarted, trials: tuple[TrialEvidence, ...]
) -> tuple[tuple[str, BenchScore], ...]:
    scores: dict[str, list[TrialScore]] = {}
    for trial in trials:
        problem = answer_problem(trial.answer, started.severities, started.breakdown_keys)
        if problem:
            raise broken(file, f"case {trial.case_id}: {problem}")
        scores.setdefault(trial.case_id, []).append(score_of(trial))
    return tuple((case_id, combine_trials(of_case)) for case_id, of_case in scores.items())


def check_head(verifier: ChainVerifier, head: Link | None) -> str | None:
    """Compare the chain with HEAD. Return a note if HEAD is one record behind, as after a crash.

    Raises ChainTamperDetected if they differ in any other way.
    """
    link = verifier.link
    if head is None:
        if link.count:
            raise broken("HEAD", "it is missing, but there are records")
        return None
    if head == link:
        return None
    if head == verifier.before and link.count == head.count + 1:
        return "HEAD is one record behind, as a crash leaves it; the next run moves it"
    raise broken(
        "HEAD", f"it names {head.count} records ending in {head.head[:12]}…, the log has {link.count}"
    )
