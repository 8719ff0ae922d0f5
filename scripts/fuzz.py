"""Mutate the corpus of interesting bytes and give the mutations to every reader, until the time is over.

    .venv/bin/python -m scripts.fuzz [--seconds 60] [--seed 0]

The same seed gives the same mutations in the same order. A reader must refuse an input with a typed error or
accept it lawfully. The first input that breaks this rule is made small and stored in the corpus beside its
original, and the run ends with 1. From then on the tests replay it.
"""

import argparse
import hashlib
import random
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import NoReturn

from tests.support.corpus import CORPUS, READERS, Reader, corpus_files, faults

# Generous: it catches a reader that never ends, or whose time grows with the square of its input.
SLOW_SECONDS = 20.0
MOST_BYTES = 1 << 16
MOST_MEMORY = 2 << 30
MOST_STEPS = 6
SMALLER_SECONDS = 60.0
TOKENS = (
    *(
        b'"',
        b"'",
        b"{",
        b"}",
        b"[",
        b"]",
        b",",
        b":",
        b"\\",
        b"\n",
        b"\r\n",
        b"\t",
        b" ",
        b"#",
        b"=",
        b".",
        b"-",
    ),
    *(b"\x00", b"\x7f", b"\x85", b"\xe2\x80\xa8", b"\xef\xbb\xbf", b"\xff", b"\xc0\x80", b"\xed\xa0\x80"),
    *(b"\\ud800", b"\\u0000", b"NaN", b"-Infinity", b"1e999", b"-0.0", b"1" * 5000, b"0x1", b"1_0", b"010"),
    *(
        b"null",
        b"true",
        b"<<: ",
        b"&a ",
        b"*a",
        b"!!python/object:os.system ",
        b"---\n",
        b"...\n",
        b"? ",
        b"|\n",
    ),
    *(b"1979-05-27", b"0000-00-00", b"9999-12-31T23:59:60Z", b'"""', b"'''", b"[[", b"]]", b"a.b.c", b'""'),
    *(b"import os\n", b"class A:\n", b"def f():\n", b"# coding: utf-7\n", b"lambda: 0", b"f'{x}'", b"\x0c"),
)


class TooSlow(BaseException):
    """A reader did not end in time; not an Exception, so that no reader takes it for one of its own."""


@dataclass(frozen=True)
class Plan:
    """What to do: from which seed, for how long, on which corpus, with which readers."""

    seed: int
    seconds: float
    corpus: Path = CORPUS
    readers: Mapping[str, Reader] | None = None


def _flip(raw: bytes, chance: random.Random, _: Sequence[bytes]) -> bytes:
    if not raw:
        return raw
    at = chance.randrange(len(raw))
    return raw[:at] + bytes([raw[at] ^ 1 << chance.randrange(8)]) + raw[at + 1 :]


def _span(raw: bytes, chance: random.Random) -> tuple[int, int]:
    begin = chance.randrange(len(raw) + 1)
    return begin, min(len(raw), begin + chance.choice((1, 2, 4, 16, 64, 256)))


def _remove(raw: bytes, chance: random.Random, _: Sequence[bytes]) -> bytes:
    begin, end = _span(raw, chance)
    return raw[:begin] + raw[end:]


def _insert(raw: bytes, chance: random.Random, _: Sequence[bytes]) -> bytes:
    at = chance.randrange(len(raw) + 1)
    return raw[:at] + chance.choice(TOKENS) + raw[at:]


def _replace(raw: bytes, chance: random.Random, _: Sequence[bytes]) -> bytes:
    begin, end = _span(raw, chance)
    return raw[:begin] + chance.choice(TOKENS) + raw[end:]


def _repeat(raw: bytes, chance: random.Random, _: Sequence[bytes]) -> bytes:
    begin, end = _span(raw, chance)
    return raw[:end] + raw[begin:end] * chance.choice((1, 2, 40, 1_000)) + raw[end:]


def _splice(raw: bytes, chance: random.Random, others: Sequence[bytes]) -> bytes:
    other = chance.choice(others)
    return raw[: chance.randrange(len(raw) + 1)] + other[chance.randrange(len(other) + 1) :]


def _swap(raw: bytes, chance: random.Random, _: Sequence[bytes]) -> bytes:
    lines = raw.split(b"\n")
    chance.shuffle(lines)
    return b"\n".join(lines)


STEPS: tuple[Callable[[bytes, random.Random, Sequence[bytes]], bytes], ...] = (
    _flip,
    _remove,
    _insert,
    _replace,
    _repeat,
    _splice,
    _swap,
)


def mutations(files: Sequence[Path], seed: int) -> Iterator[tuple[Path, bytes]]:
    """Yield mutated inputs without end, each with the file that it was made from."""
    chance = random.Random(seed)  # noqa: S311 - it is to be repeated
    contents = [path.read_bytes() for path in files]
    while True:
        number = chance.randrange(len(files))
        raw = contents[number]
        for _ in range(chance.randint(1, MOST_STEPS)):
            raw = chance.choice(STEPS)(raw, chance, contents)[:MOST_BYTES]
        yield files[number], raw


def _too_slow(_signal: int, _frame: FrameType | None) -> NoReturn:
    raise TooSlow


def timed_faults(raw: bytes, readers: Mapping[str, Reader]) -> list[str]:
    """Return the faults of the readers on one input; a reader that does not end in time has a fault."""
    found = []
    before = signal.signal(signal.SIGALRM, _too_slow)
    try:
        for name, reader in readers.items():
            signal.setitimer(signal.ITIMER_REAL, SLOW_SECONDS)
            try:
                found += faults(raw, {name: reader})
            except TooSlow:
                found.append(f"{name}: takes more than {SLOW_SECONDS:g} s")
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
    finally:
        signal.signal(signal.SIGALRM, before)
    return found


def smaller(raw: bytes, fails: Callable[[bytes], bool]) -> bytes:
    """Take away pieces, large ones first, as long as the rest still fails."""
    deadline = time.monotonic() + SMALLER_SECONDS
    size = max(1, len(raw) // 2)
    while size and time.monotonic() < deadline:
        shorter = (raw[:at] + raw[at + size :] for at in range(0, len(raw), size))
        found = next((candidate for candidate in shorter if fails(candidate)), None)
        if found is None:
            size //= 2
        else:
            raw = found
    return raw


def _fails(readers: Mapping[str, Reader], raw: bytes) -> bool:
    return bool(timed_faults(raw, readers))


def store(raw: bytes, beside: Path) -> Path:
    """Store an input under the name of its content."""
    target = beside.with_name(f"found-{hashlib.sha256(raw).hexdigest()[:12]}")
    target.write_bytes(raw)
    return target


def fuzz(plan: Plan) -> int:
    """Try mutations until one is a fault or the time is over; return the exit status."""
    readers = READERS if plan.readers is None else plan.readers
    deadline = time.monotonic() + plan.seconds
    count = 0
    for made_from, raw in mutations(corpus_files(plan.corpus), plan.seed):
        if time.monotonic() >= deadline:
            break
        count += 1
        found = timed_faults(raw, readers)
        if found:
            guilty = {name: reader for name, reader in readers.items() if found[0].startswith(f"{name}: ")}
            stored = store(smaller(raw, partial(_fails, guilty)), made_from)
            print(f"fuzz: seed {plan.seed}, input {count}, stored as {stored}", *found, sep="\n  ")
            return 1
    print(f"fuzz: seed {plan.seed}, {count} inputs, {len(readers)} readers, no fault")
    return 0


def main(arguments: Sequence[str]) -> int:
    """Read the options and fuzz; return the exit status."""
    parser = argparse.ArgumentParser(prog="fuzz", description="Give mutated inputs to every reader.")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long to try (default: 60)")
    parser.add_argument("--seed", type=int, default=0, help="where to begin (default: 0)")
    options = parser.parse_args(arguments)
    # A reader that needs more memory than this is a finding, and it must not stop the machine.
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    return fuzz(Plan(options.seed, options.seconds))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
