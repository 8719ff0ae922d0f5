"""One row of the table of wrong inputs."""

from dataclasses import dataclass
from pathlib import Path

from tests.support.stub_benches import NAME, Edit

RUN = ("eval", "run", NAME, "--sut", "null", "--quiet", "--bench-root", "bench")


def _unchanged(_bench: Path) -> None:
    """Leave the bench as it is: the command line is what is wrong."""


@dataclass(frozen=True)
class Refusal:
    """What is wrong, in a sentence; how to make it; and how it must be refused."""

    sentence: str
    edit: Edit
    error: str
    says: str
    code: int = 2
    argv: tuple[str, ...] = RUN
    environment: tuple[tuple[str, str], ...] = ()
    """Variables for this row."""

    def __str__(self) -> str:
        return self.sentence


def wrong_flags(sentence: str, argv: str | tuple[str, ...], error: str, says: str, code: int = 2) -> Refusal:
    """Make a row in which only the command line is wrong; `argv` follows `codegenie`."""
    words = tuple(argv.split()) if isinstance(argv, str) else argv
    return Refusal(sentence, _unchanged, error, says, code, words)


def bench_invalid(sentence: str, edit: Edit, says: str) -> Refusal:
    """Make a row for a bench that is not even looked into."""
    return Refusal(sentence, edit, "BenchInvalid", says)


def bad_case(sentence: str, edit: Edit, says: str) -> Refusal:
    """Make a row for a case that does not follow the contract."""
    return Refusal(f"a case {sentence}", edit, "BenchCaseLoadError", says)
