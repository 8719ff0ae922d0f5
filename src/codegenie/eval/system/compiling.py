"""Checks whether sources compile. A child process compiles them and runs none of them."""

import json
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from codegenie.eval.decoding import decode_json
from codegenie.eval.errors import DecodingRefused, HarnessFailure
from codegenie.eval.limits import LIMITS
from codegenie.eval.sanitising import one_line

_CHILD_PROGRAM = Path(__file__).with_name("compile_program.py")
_ANSWER_BYTES = 64 * 1024
_CRASHES = {signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT}


@dataclass(frozen=True, slots=True)
class SourceProblem:
    """Why one source does not compile, and on which line."""

    path: str
    line: int | None
    message: str


# A command loads a bench up to four times. Few results are kept: a rubric may have three megabytes.
@lru_cache(maxsize=4)
def source_problems(sources: tuple[tuple[str, bytes], ...]) -> tuple[SourceProblem, ...]:
    """Compile sources, each a path and its content. Those after one that ends the compiler are left out."""
    if not sources:
        return ()
    try:
        ended = subprocess.run(
            [sys.executable, "-I", "-S", "-B", str(_CHILD_PROGRAM), json.dumps(_limits())],
            input=json.dumps([len(content) for _, content in sources]).encode()
            + b"\n"
            + b"".join(content for _, content in sources),
            capture_output=True,
            env={},
            # The harness handles Ctrl-C. If it ended the compiler, a source would be blamed.
            start_new_session=True,
            timeout=LIMITS.compile_seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise _not_compiled(f"not done within {LIMITS.compile_seconds:g} s") from None
    except OSError as error:
        raise _not_compiled(error.strerror or "no process") from None
    return tuple(_problems([path for path, _ in sources], ended))


def _limits() -> dict[str, int]:
    return {
        "RLIMIT_CPU": LIMITS.compile_cpu_seconds,
        "RLIMIT_AS": LIMITS.compile_memory_bytes,
        "RLIMIT_CORE": 0,
    }


def _not_compiled(why: str) -> HarnessFailure:
    return HarnessFailure(
        f"cannot compile the rubric: {why}", hint="find out what keeps this machine busy, and run again"
    )


def _problems(paths: Sequence[str], ended: "subprocess.CompletedProcess[bytes]") -> list[SourceProblem]:
    answers = ended.stdout.split(b"\n")[:-1]
    problems = []
    for path, answer in zip(paths, answers, strict=False):
        told = _decoded(answer)
        if told is not None:
            problems.append(SourceProblem(path, *told))
    if ended.returncode or len(answers) != len(paths):
        why = _brought_about(-ended.returncode)
        if why is None or len(answers) >= len(paths):
            raise _not_compiled(f"the compiler ended with {ended.returncode}")
        problems.append(SourceProblem(paths[len(answers)], None, why))
    return problems


def _brought_about(number: int) -> str | None:
    """Return what a source did to its compiler; None if the signal came from another process."""
    if number == signal.SIGXCPU:
        return f"needs more than {LIMITS.compile_cpu_seconds} s of processor time to be compiled"
    return "crashes the compiler" if number in _CRASHES else None


def _decoded(answer: bytes) -> tuple[int | None, str] | None:
    """Read the child's answer about one source; None if the source compiles."""
    try:
        told = decode_json(answer, _ANSWER_BYTES)
    except DecodingRefused as refusal:
        raise _not_compiled(refusal.message) from None
    if told is None:
        return None
    if not isinstance(told, dict) or not isinstance(told.get("message"), str):
        raise _not_compiled("the compiler gave an unusable answer")
    line = told.get("line")
    # The message quotes the source.
    return line if isinstance(line, int) and line > 0 else None, one_line(told["message"])
