"""Live progress on stderr: lines that are rewritten on a terminal, one line per trial elsewhere."""

import contextlib
import os
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TextIO

from codegenie.eval.estimators.bounds import floor3
from codegenie.eval.evidence import TrialEvidence
from codegenie.eval.models import Severity, TrialScore
from codegenie.eval.ports import Beat, Progress
from codegenie.eval.wording import counted

_REDRAW_SECONDS = 0.1
_LINE_SECONDS = 60.0
_MOST_LINES = 12
_THOUSAND = 1_000


class _Counting:
    """Counts finished trials; the two ways to show them differ only in `_show`."""

    def __init__(self, total: int, stream: TextIO) -> None:
        self._total = total
        self._stream = stream
        self._done = self._passed = self._blocked = 0

    def finished(self, evidence: TrialEvidence, score: TrialScore) -> None:
        """Count a trial and show it."""
        self._done += 1
        self._passed += score.passed
        blocking = [mode.code for mode in score.failure_modes if mode.severity is Severity.BLOCK]
        self._blocked += bool(blocking)
        what = "passed" if score.passed else blocking[0] if blocking else "not passed"
        name = f"{evidence.case_id}#{evidence.trial}" if evidence.trial else evidence.case_id
        # The reader of stderr may close it; a run goes on without it.
        with contextlib.suppress(OSError):
            self._show(name, f"{what}, score {floor3(score.score)}")

    def _show(self, case: str, what: str) -> None:
        raise RuntimeError(f"nothing shows {case}: {what}")

    def working(self, beats: Sequence[Beat]) -> None:
        """Show the agents that work now."""
        with contextlib.suppress(OSError):
            self._show_working(beats)

    def _show_working(self, beats: Sequence[Beat]) -> None:
        """Show nothing, unless the way to show says how."""

    def close(self) -> None:
        """Restore the stream."""


class LineProgress(_Counting):
    """A line for every trial, and one a minute for every agent that works: for logs."""

    _told = 0.0

    def _show(self, case: str, what: str) -> None:
        print(f"[{self._done}/{self._total}] {case}: {what}", file=self._stream, flush=True)

    def _show_working(self, beats: Sequence[Beat]) -> None:
        now = time.monotonic()
        self._told = self._told or now
        if now - self._told < _LINE_SECONDS:
            return
        self._told = now
        for beat in beats:
            print(plain_line(beat), file=self._stream, flush=True)


class LiveProgress(_Counting):
    """A line with counts, and one for each agent that works, rewritten in place: for terminals."""

    _drawn = 0.0
    _counts = ""
    _beats: Sequence[Beat] = ()
    _height = 1

    def _show(self, case: str, what: str) -> None:
        now = time.monotonic()
        if now - self._drawn < _REDRAW_SECONDS and self._done < self._total:
            return
        self._drawn = now
        counts = f"{self._done}/{self._total} done · {self._passed} passed · {self._blocked} blocked"
        self._counts = f"{counts} · {case}: {what}"
        self._draw()

    def _show_working(self, beats: Sequence[Beat]) -> None:
        self._beats = beats
        self._counts = self._counts or f"0/{self._total} done"
        self._draw()

    def _draw(self) -> None:
        size = shutil.get_terminal_size()
        most = max(0, min(_MOST_LINES, size.lines - 2))
        lines = [self._counts, *(live_line(beat) for beat in self._beats[:most])]
        hidden = len(self._beats) - most
        lines += [f"… and {hidden} more"] if hidden > 0 else []
        text = "\n".join(f"\x1b[2K{line[: size.columns - 1]}" for line in lines)
        below = "\x1b[J" if max(self._height, len(lines)) > 1 else ""
        print(f"{self._up()}{text}{below}", end="", file=self._stream, flush=True)
        self._height = len(lines)

    def _up(self) -> str:
        """Return what moves the cursor to the beginning of the first line."""
        return "\r" if self._height == 1 else f"\r\x1b[{self._height - 1}A"

    def close(self) -> None:
        """Clear the lines."""
        below = "\x1b[J" if self._height > 1 else ""
        print(f"{self._up()}\x1b[2K{below}", end="", file=self._stream, flush=True)


class _Quiet(_Counting):
    def _show(self, case: str, what: str) -> None:
        pass


def live_line(beat: Beat) -> str:
    """Return how far an agent is, for a terminal: `c07 · 03:12 of 30:00 · 41 events, last 4 s ago · …`."""
    parts = [
        _name(beat),
        f"{_clock(beat.seconds)} of {_clock(beat.limit_seconds)}",
        f"{counted(beat.events, 'event')}, last {beat.silent_seconds:.0f} s ago",
    ]
    if beat.input_tokens is not None and beat.output_tokens is not None:
        parts.append(f"{_short(beat.input_tokens)} in {_short(beat.output_tokens)} out")
    if beat.cost_usd is not None:
        parts.append(f"{beat.cost_usd:.2f} USD")
    return " · ".join(parts)


def plain_line(beat: Beat) -> str:
    """Return how far an agent is, for a log: `c07 running 192 s, last output 4 s ago, 12.3k/1.1k tokens`."""
    line = f"{_name(beat)} running {beat.seconds:.0f} s, last output {beat.silent_seconds:.0f} s ago"
    if beat.input_tokens is None or beat.output_tokens is None:
        return line
    return f"{line}, {_short(beat.input_tokens)}/{_short(beat.output_tokens)} tokens"


def _name(beat: Beat) -> str:
    return f"{beat.case_id}#{beat.trial}" if beat.trial else beat.case_id


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes:02}:{rest:02}"


def _short(tokens: int) -> str:
    return str(tokens) if tokens < _THOUSAND else f"{tokens / _THOUSAND:.1f}k"


@contextmanager
def progress_for(total: int, *, quiet: bool) -> Iterator[Progress]:
    """Show progress live if stderr is a terminal that can rewrite a line, in plain lines otherwise."""
    stream = sys.stderr
    live = stream.isatty() and os.environ.get("TERM", "") not in {"", "dumb"}
    shown: _Counting = (
        _Quiet(total, stream) if quiet else (LiveProgress if live else LineProgress)(total, stream)
    )
    try:
        yield shown
    finally:
        with contextlib.suppress(OSError):
            shown.close()
