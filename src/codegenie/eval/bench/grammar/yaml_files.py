"""`failure_modes.yaml` and `cases/digests.yaml`."""

import re

from pydantic import ValidationError

from codegenie.eval.bench.grammar.problems import Problem, Problems, Reading, Refused, Topic, quoted
from codegenie.eval.decoding import EMPTY_FILE, decode_yaml_with_lines
from codegenie.eval.errors import DecodingRefused, DigestManifestInvalid, FailureModeTaxonomyInvalid
from codegenie.eval.models import CODE_PATTERN, RESERVED_PREFIXES, RUNNER_CODES, FailureModeSpec, Severity

_NOTHING = ("~", "null", "Null", "NULL")  # other readers of YAML take these for a missing value
_DIGEST = r"blake3:([0-9a-f]{64})"
_DIGEST_LINE = re.compile(rf"([a-z0-9][a-z0-9_-]{{0,63}}): {_DIGEST}")


def inspect_taxonomy(raw: bytes) -> Reading[dict[str, FailureModeSpec]]:
    """Read the taxonomy of failure modes, entry by entry, and all that is wrong with it."""
    problems = Problems()
    taxonomy: dict[str, FailureModeSpec] = {}
    with problems.caught():
        entries, lines = _taxonomy_entries(raw)
        for code, entry in entries.items():
            with problems.caught():
                taxonomy[code] = _read_failure_mode(code, entry, lines[code])
        missing = sorted(RUNNER_CODES.keys() - entries.keys())
        if missing:
            problem = f"does not declare the runner-internal code {', '.join(missing)}"
            problems.found.append(_taxonomy_problem(problem, None, "runner_code"))
        for code, spec in taxonomy.items():
            with problems.caught():
                _check_runner_code(code, spec, lines[code])
    return Reading(dict(sorted(taxonomy.items())), tuple(problems.found))


def read_taxonomy(raw: bytes) -> dict[str, FailureModeSpec]:
    """Return the taxonomy of failure modes, the seven runner-internal codes included (ADR-0004)."""
    return inspect_taxonomy(raw).or_refuse()


def _taxonomy_entries(raw: bytes) -> tuple[dict[str, object], dict[str, int]]:
    try:
        entries, lines = decode_yaml_with_lines(raw)
    except DecodingRefused as refusal:
        raise Refused(_taxonomy_problem(refusal.message, refusal.line)) from None
    if not isinstance(entries, dict):
        raise Refused(_taxonomy_problem("is not a mapping from code to severity and description"))
    return entries, lines


def _check_runner_code(code: str, spec: FailureModeSpec, line: int) -> None:
    if code in RUNNER_CODES and spec.severity is not Severity.BLOCK:
        problem = f"lowers {code} to {spec.severity.value}; its severity must be block"
        raise Refused(_taxonomy_problem(problem, line, "runner_code"))
    if code not in RUNNER_CODES and code.startswith(RESERVED_PREFIXES):
        problem = f"declares {code!r} under a prefix that belongs to the runner"
        raise Refused(_taxonomy_problem(problem, line, "runner_code"))


def _read_failure_mode(code: str, entry: object, line: int) -> FailureModeSpec:
    if not re.fullmatch(CODE_PATTERN, code):
        problem = f"code {quoted(code)} does not match [a-z][a-z0-9_.]{{0,63}}"
        raise Refused(_taxonomy_problem(problem, line))
    if not isinstance(entry, dict):
        raise Refused(_taxonomy_problem(f"{code} is not a mapping with severity and description", line))
    severity = entry.get("severity")
    if severity not in list(Severity):
        problem = f"{code} has severity {quoted(severity)}, which is not one of block, warn and info"
        raise Refused(_taxonomy_problem(problem, line))
    if entry.get("description") in _NOTHING:
        raise Refused(_taxonomy_problem(f"{code} has no description", line))
    try:
        return FailureModeSpec.model_validate({**entry, "severity": Severity(severity)})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(quoted(part) for part in first["loc"])
        raise Refused(_taxonomy_problem(f"{code}: {place}: {first['msg']}", line)) from None


def _taxonomy_problem(problem: str, line: int | None = None, topic: Topic = "form") -> Problem:
    return Problem(
        FailureModeTaxonomyInvalid,
        f"the taxonomy {problem}"
        if problem.startswith(("is ", "does ", "lowers ", "declares "))
        else problem,
        "failure_modes.yaml",
        line,
        "see docs/reference/bench.md for its form and the seven codes that it must declare",
        topic,
    )


def inspect_digests(raw: bytes) -> Reading[dict[str, str]]:
    """Read case id to digest, without its prefix, and all that is wrong with `cases/digests.yaml`."""
    problems = Problems()
    digests: dict[str, str] = {}
    with problems.caught():
        entries = _flat_digests(raw)
        if entries is not None:
            return Reading(entries)
        document, lines = _digest_entries(raw)
        for case_id, value in document.items():
            digest = re.fullmatch(_DIGEST, value) if isinstance(value, str) else None
            if digest is None:
                problem = f"the digest of {quoted(case_id)} is not blake3:<64 hex digits>"
                problems.found.append(_digests_problem(problem, lines[case_id]))
            else:
                digests[case_id] = digest[1]
    return Reading(digests, tuple(problems.found))


def read_digests(raw: bytes) -> dict[str, str]:
    """Return case id to digest, without its prefix, as `cases/digests.yaml` says."""
    return inspect_digests(raw).or_refuse()


def digest_lines(raw: bytes) -> dict[str, int]:
    """Return the line of each entry of a list that `inspect_digests` could read."""
    try:
        if entries := _flat_digests(raw):
            return {case_id: number for number, case_id in enumerate(entries, 1)}
        return _digest_entries(raw)[1]
    except Refused:
        return {}


def _digest_entries(raw: bytes) -> tuple[dict[str, object], dict[str, int]]:
    try:
        document, lines = decode_yaml_with_lines(raw)
    except DecodingRefused as refusal:
        if refusal.message != EMPTY_FILE:
            raise Refused(_digests_problem(refusal.message, refusal.line)) from None
        document, lines = {}, {}
    # A list without an entry, as an author begins with, is a list: every case then lacks its entry.
    if not document:
        return {}, lines
    if not isinstance(document, dict):
        raise Refused(_digests_problem("is not a mapping from case id to digest"))
    return document, lines


def _flat_digests(raw: bytes) -> dict[str, str] | None:
    """Read the list in the form in which the harness writes it, or return None.

    A tenth of the time that YAML takes, so that this form alone may be larger than other YAML.
    """
    digests: dict[str, str] = {}
    for number, line in enumerate(raw.decode("ascii", "replace").removesuffix("\n").split("\n"), 1):
        match = _DIGEST_LINE.fullmatch(line)
        if match is None:
            return None
        if match[1] in digests:
            raise Refused(_digests_problem(f"key {match[1]!r} appears twice", number))
        digests[match[1]] = match[2]
    return digests


def _digests_problem(problem: str, line: int | None = None) -> Problem:
    return Problem(
        DigestManifestInvalid,
        problem,
        "digests.yaml",
        line,
        "remove it and write it with `codegenie eval digest TASK_CLASS --write`",
    )
