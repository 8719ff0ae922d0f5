"""Live progress on stderr: one line that is rewritten on a terminal, one line per trial elsewhere."""

import contextlib
import os
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from codegenie.eval.estimators.bounds import floor3
from codegenie.eval.evidence import TrialEvidence
from codegenie.eval.models import Severity, TrialScore
from codegenie.eval.ports import Progress

_REDRAW_SECONDS = 0.1


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

    def close(self) -> None:
        """Restore the stream."""


class LineProgress(_Counting):
    """A line for every trial: for logs."""

    def _show(self, case: str, what: str) -> None:
        print(f"[{self._done}/{self._total}] {case}: {what}", file=self._stream, flush=True)


class LiveProgress(_Counting):
    """One line, rewritten at most ten times a second: for terminals."""

    _drawn = 0.0

    def _show(self, case: str, what: str) -> None:
        now = time.monotonic()
        if now - self._drawn < _REDRAW_SECONDS and self._done < self._total:
            return
        self._drawn = now
        counts = f"{self._done}/{self._total} done · {self._passed} passed · {self._blocked} blocked"
        width = shutil.get_terminal_size().columns - 1
        print(f"\r\x1b[2K{f'{counts} · {case}: {what}'[:width]}", end="", file=self._stream, flush=True)

    def close(self) -> None:
        """Clear the line."""
        print("\r\x1b[2K", end="", file=self._stream, flush=True)


class _Quiet(_Counting):
    def _show(self, case: str, what: str) -> None:
        pass


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
