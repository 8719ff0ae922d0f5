"""Read the policy that the gate uses from `trust-tiers.yaml`. This file is never part of a bench."""

import datetime as dt
import math
import re
from collections.abc import Iterable
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, Field, ValidationError

from codegenie.eval.canonical import digest_json
from codegenie.eval.decoding import decode_yaml
from codegenie.eval.errors import DecodingRefused, TierConfigInvalid
from codegenie.eval.log.records import RunId
from codegenie.eval.models import IDENTIFIER_PATTERN, Digest, FrozenMap, IsolationClass, Record, Sentence

ISOLATION_ORDER: tuple[IsolationClass, ...] = get_args(IsolationClass)
"""The isolation classes, weakest first."""

# The default for three tiers, if a policy does not set it. Any further tier needs the strongest class.
_DEFAULT_ISOLATION: tuple[IsolationClass, ...] = ("subprocess", "landlock", "namespace")

AgentBoundary = Literal["process", "landlock", "namespace"]
"""Where an agent runs if its run can be evidence: in a plain process, or in a box of a proved class."""

BOUNDARY_ORDER: tuple[AgentBoundary, ...] = get_args(AgentBoundary)
"""These places, weakest first. The first is the default for the first tier, and so on."""

# A policy that leaves tiers out does not make these two easier to reach.
_NAMED_TIERS = {"silver": 1, "gold": 2}

DEFAULT_THRESHOLDS = {"bronze": 0.5, "silver": 0.8, "gold": 0.9}
"""The usual tiers, lowest first, for checks of a bench without a policy. A policy has no default tiers."""

FIRST_POLICY = f"""\
# What each tier asks for: the share of units that a run has to certify. A human promotes, by editing
# current_tiers. docs/reference/gate.md names every setting.
thresholds: {{{", ".join(f"{tier}: {share}" for tier, share in DEFAULT_THRESHOLDS.items())}}}
current_tiers: {{}}
"""
"""The file that `codegenie eval tiers --write` writes."""

DEFAULT_HELD_OUT = 5
"""ADR-0006: every tier above the lowest needs at least five held-out cases."""

# Three months: agents, models and advisories change faster than that.
_DEFAULT_AGE_DAYS = 90
_DEFAULT_ALPHA = 0.05
_LARGEST_ALPHA = 0.2
_KEYS = {
    "thresholds",
    "current_tiers",
    "minimum_isolation",
    "minimum_sut_boundary",
    "minimum_held_out",
    "maximum_age_days",
    "alpha",
    "waivers",
}
_DATE = re.compile(r"\d{4}-\d\d-\d\d")


class Waiver(Record):
    """A human's decision that an accident of one run does not count against its agent."""

    refund: RunId
    by: Sentence
    on: dt.date
    because: Sentence


class TierPolicy(Record):
    """What each tier requires.

    The digest leaves out `current_tiers` and `waivers`, because a human edits them after the runs.
    """

    thresholds: Annotated[dict[str, float], AfterValidator(FrozenMap)]
    minimum_isolation: Annotated[dict[str, IsolationClass], AfterValidator(FrozenMap)]
    minimum_sut_boundary: Annotated[dict[str, AgentBoundary], AfterValidator(FrozenMap)]
    minimum_held_out: Annotated[dict[str, int], AfterValidator(FrozenMap)]
    maximum_age_days: Annotated[int, Field(ge=1)]
    alpha: Annotated[float, Field(gt=0, le=_LARGEST_ALPHA)]
    current_tiers: Annotated[dict[str, str], AfterValidator(FrozenMap)]
    waivers: tuple[Waiver, ...] = ()
    digest: Digest

    def next_tier(self, task_class: str) -> str | None:
        """Return the tier above the class's current one; None at the top."""
        tiers = list(self.thresholds)
        current = self.current_tiers.get(task_class)
        position = tiers.index(current) + 1 if current in tiers else 0
        return tiers[position] if position < len(tiers) else None

    def lowered_boundary(self, tier: str) -> AgentBoundary | None:
        """Return the default of a tier if this policy lets the agent run in a weaker place."""
        default = default_boundaries(self.thresholds)[tier]
        least = self.minimum_sut_boundary[tier]
        return default if BOUNDARY_ORDER.index(least) < BOUNDARY_ORDER.index(default) else None

    def forbids_host_network(self, tier: str) -> bool:
        """Say whether a tier takes no evidence of an agent that could reach the host's network.

        No setting changes it: gold, the third tier and those above it.
        """
        return default_boundaries(self.thresholds)[tier] == BOUNDARY_ORDER[-1]


def default_boundaries(tiers: Iterable[str]) -> dict[str, AgentBoundary]:
    """Return where an agent must at least have run for each tier, if a policy does not say it."""
    strongest = len(BOUNDARY_ORDER) - 1
    return {
        tier: BOUNDARY_ORDER[min(max(position, _NAMED_TIERS.get(tier, 0)), strongest)]
        for position, tier in enumerate(tiers)
    }


def read_policy(raw: bytes, where: str) -> TierPolicy:
    """Read a policy strictly. Unknown keys, quoted numbers, booleans and NaN raise TierConfigInvalid."""
    try:
        document = decode_yaml(raw, numbers=True)
    except DecodingRefused as refusal:
        raise TierConfigInvalid(refusal.message, where=where) from None
    reader = _Reader(document, where)
    thresholds = reader.thresholds()
    tiers = list(thresholds)
    decided: dict[str, Any] = {
        "thresholds": thresholds,
        "minimum_isolation": reader.minimum_isolation(tiers),
        "minimum_sut_boundary": reader.minimum_sut_boundary(tiers),
        "minimum_held_out": reader.minimum_held_out(tiers),
        "maximum_age_days": reader.whole_number("maximum_age_days", _DEFAULT_AGE_DAYS, smallest=1),
        "alpha": reader.alpha(),
    }
    hashed = {**decided, "thresholds": list(thresholds.items())}
    if hashed["minimum_sut_boundary"] == default_boundaries(tiers):
        # Digests of policies are older than this setting, whose default only asks for more than they did.
        del hashed["minimum_sut_boundary"]
    digest = digest_json("policy.v1", hashed)
    return TierPolicy(
        **decided, current_tiers=reader.current_tiers(tiers), waivers=reader.waivers(), digest=digest
    )


class _Reader:
    """Reads a decoded document, one typed value at a time."""

    def __init__(self, document: Any, where: str) -> None:  # noqa: ANN401 - whatever YAML held
        self._where = where
        if not isinstance(document, dict):
            raise self._error("the policy is not a mapping")
        unknown = sorted(document.keys() - _KEYS)
        if unknown:
            raise self._error(f"there is no setting {ascii(unknown[0])[:80]}")
        self._document = document

    def _error(self, problem: str) -> TierConfigInvalid:
        return TierConfigInvalid(problem, where=self._where, hint="see docs/reference/gate.md for its form")

    def _mapping(self, name: str) -> dict[str, Any]:
        value = self._document.get(name, {})
        if not isinstance(value, dict):
            raise self._error(f"{name} is not a mapping")
        return value

    def _number(self, name: str, value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise self._error(f"{name} is {ascii(value)[:40]}, not a plain number")
        return float(value)

    def _check_name(self, name: str, setting: str, what: str) -> None:
        if not re.fullmatch(IDENTIFIER_PATTERN, name):
            raise self._error(f"{setting} names {ascii(name)[:80]}, which is not the name of a {what}")

    def thresholds(self) -> dict[str, float]:
        given = self._mapping("thresholds")
        if not given:
            raise self._error("thresholds names no tier")
        values: dict[str, float] = {}
        before = 0.0
        for tier, text in given.items():
            self._check_name(tier, "thresholds", "tier")
            value = self._number(f"thresholds.{tier}", text)
            if not before < value <= 1.0:
                raise self._error(f"thresholds.{tier} is {value}; thresholds must rise, above 0 and up to 1")
            values[tier] = before = value
        return values

    def minimum_isolation(self, tiers: list[str]) -> dict[str, str]:
        given = self._mapping("minimum_isolation")
        self._check_tiers("minimum_isolation", given, tiers)
        for tier, value in given.items():
            if value not in ISOLATION_ORDER:
                raise self._error(f"minimum_isolation.{tier} is not one of {', '.join(ISOLATION_ORDER)}")
        strongest = len(_DEFAULT_ISOLATION) - 1
        return {
            tier: given.get(tier, _DEFAULT_ISOLATION[min(position, strongest)])
            for position, tier in enumerate(tiers)
        }

    def minimum_sut_boundary(self, tiers: list[str]) -> dict[str, AgentBoundary]:
        given = self._mapping("minimum_sut_boundary")
        self._check_tiers("minimum_sut_boundary", given, tiers)
        for tier, value in given.items():
            if value not in BOUNDARY_ORDER:
                raise self._error(f"minimum_sut_boundary.{tier} is not one of {', '.join(BOUNDARY_ORDER)}")
        return {tier: given.get(tier, default) for tier, default in default_boundaries(tiers).items()}

    def minimum_held_out(self, tiers: list[str]) -> dict[str, int]:
        given = self._document.get("minimum_held_out", {})
        if not isinstance(given, dict):
            given = dict.fromkeys(tiers, given)
        self._check_tiers("minimum_held_out", given, tiers)
        for tier, value in given.items():
            if type(value) is not int or value < 0:
                raise self._error(f"minimum_held_out.{tier} is not a whole number from 0 upwards")
        return {
            tier: given.get(tier, DEFAULT_HELD_OUT if position else 0) for position, tier in enumerate(tiers)
        }

    def whole_number(self, name: str, default: int, *, smallest: int) -> int:
        value = self._document.get(name, default)
        if type(value) is not int or value < smallest:
            raise self._error(f"{name} is not a whole number from {smallest} upwards")
        return value

    def alpha(self) -> float:
        value = self._number("alpha", self._document.get("alpha", _DEFAULT_ALPHA))
        if not 0.0 < value <= _LARGEST_ALPHA:
            raise self._error(f"alpha is {value}; it must be above 0 and up to {_LARGEST_ALPHA}")
        return value

    def current_tiers(self, tiers: list[str]) -> dict[str, str]:
        given = self._mapping("current_tiers")
        for task_class, tier in given.items():
            self._check_name(task_class, "current_tiers", "task class")
            self._check_tiers(f"current_tiers.{task_class}", [tier], tiers)
        return given

    def waivers(self) -> tuple[Waiver, ...]:
        given = self._document.get("waivers", [])
        if not isinstance(given, list):
            raise self._error("waivers is not a list")
        waivers = tuple(self._waiver(number, entry) for number, entry in enumerate(given, 1))
        if len({waiver.refund for waiver in waivers}) < len(waivers):
            raise self._error("waivers names a run twice")
        return waivers

    def _waiver(self, number: int, entry: object) -> Waiver:
        if not isinstance(entry, dict):
            raise self._error(f"waiver {number} is not a mapping")
        # Strict records need a date object, but our YAML decoder returns only strings and numbers.
        on = entry.get("on")
        try:
            date = dt.date.fromisoformat(on) if isinstance(on, str) and _DATE.fullmatch(on) else None
        except ValueError:
            date = None
        if date is None:
            raise self._error(f"waiver {number}: on is {ascii(on)[:40]}, not a date such as 2026-11-21")
        try:
            return Waiver(**{**entry, "on": date})
        except (ValidationError, TypeError) as error:
            raise self._error(f"waiver {number}: {_problem(error)}") from None

    def _check_tiers(self, name: str, given: Iterable[object], tiers: list[str]) -> None:
        for tier in given:
            if tier not in tiers:
                raise self._error(f"{name} names the tier {ascii(tier)[:40]}, which has no threshold")


def _problem(error: ValidationError | TypeError) -> str:
    if isinstance(error, TypeError):
        return "its keys are not strings"
    first = error.errors(include_url=False, include_input=False)[0]
    return f"{ascii('.'.join(map(str, first['loc'])))[1:-1][:80]}: {first['msg']}"
