"""A command that holds a temporary directory removes it when a signal ends the command."""

import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import click

from codegenie.eval.bench.loading import BenchRoot
from codegenie.eval.bench.shipped import Benches
from codegenie.eval.log.bundle import opened_log
from codegenie.eval.sanitising import printable
from codegenie.eval.system.folders import resolved

_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


class Ended(KeyboardInterrupt):
    """A signal ended the command. Like Ctrl-C it runs every `finally` on the way out."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.exit_code = 128 + number


@contextmanager
def ended_in_order(signals: Sequence[signal.Signals] = _SIGNALS) -> Iterator[None]:
    """Run every `finally` when one of these signals ends the command."""
    # A parent that ignores a signal, like nohup, wants it ignored.
    before = {number: signal.getsignal(number) for number in signals}
    taken = [number for number, handler in before.items() if handler is signal.SIG_DFL]
    for number in taken:
        signal.signal(number, _end)
    try:
        yield
    finally:
        for number in taken:
            signal.signal(number, before[number])


@contextmanager
def log_until_signal(path: Path) -> Iterator[Path]:
    """Give the directory of a log or of an unpacked bundle, which is removed also when a signal comes."""
    with ended_in_order(), opened_log(path) as directory:
        # Resolved once: if a link changes meanwhile, the same log must be read.
        yield resolved(directory)


@contextmanager
def benches_until_signal(bench_root: BenchRoot) -> Iterator[Benches]:
    """Give the benches of the user and the shipped ones; unpacked files are removed in any case."""
    # Not SIGHUP: it would end a run in the middle of its event loop.
    with ended_in_order((signal.SIGTERM,)), Benches(bench_root, _note) as benches:
        yield benches


def _note(text: str) -> None:
    click.echo(f"codegenie: {printable(text)}", err=True)


def _end(number: int, _frame: FrameType | None) -> None:
    # Only once: a second signal must not interrupt the removal after the first one.
    for each in _SIGNALS:
        signal.signal(each, signal.SIG_IGN)
    raise Ended(number)
