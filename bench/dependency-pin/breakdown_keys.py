"""What a score of `dependency-pin` is made of; the README says what each key means."""

from enum import StrEnum


class BreakdownKey(StrEnum):  # noqa: D101 - the loader accepts nothing here but keys
    FIXED = "fixed"
    MINIMAL = "minimal"
    PARSES = "parses"
