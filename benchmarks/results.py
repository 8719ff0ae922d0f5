"""Writes figures as a page: the tables, and the machine that they were measured on."""

import datetime as dt
import os
import platform
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version

from benchmarks.rounds import Spread


@dataclass(frozen=True, slots=True)
class Row:
    """One figure and its target, if it has one."""

    what: str
    figure: Spread
    unit: str
    target: float | None = None

    def cells(self) -> list[str]:
        """Return the cells of a row of the table."""
        digits = 3 if self.figure.median < 10 else 1
        figures = [f"{value:.{digits}f}" for value in (self.figure.median, self.figure.low, self.figure.high)]
        if self.target is None:
            return [self.what, *figures, self.unit, ""]
        met = "met" if self.figure.median <= self.target else "missed"
        return [self.what, *figures, self.unit, f"≤ {self.target:g}: {met}"]


@dataclass(frozen=True, slots=True)
class Section:
    """The figures of one measurement, and how they were taken."""

    title: str
    how: str
    rows: Sequence[Row]


_HEADINGS = ["what", "median", "min", "max", "unit", "target"]


def render(sections: Sequence[Section], command: str, load: float) -> str:
    """Return the whole page; `load` is the load average from before the measurements."""
    return (
        "\n".join([*_front(command, load), *(line for section in sections for line in _table(section))])
        + "\n"
    )


def _front(command: str, load: float) -> Iterator[str]:
    yield "# What the harness costs"
    yield ""
    yield "Made by the command below; not edited by hand. A timing never fails anything: a target that was"
    yield "missed is printed as missed. Ratios are taken within a round; the median of the rounds decides."
    yield ""
    yield f"- command: `{command}`"
    yield f"- date: {dt.datetime.now(dt.UTC):%Y-%m-%d}"
    yield f"- machine: {_cpu_model()}, {os.cpu_count()} cores, {_memory()}"
    yield f"- system: {platform.system()} {platform.release()}, {_python()}"
    packages = ", ".join(f"{name} {version(name)}" for name in ("pydantic", "blake3", "PyYAML", "numpy"))
    yield f"- packages: codegenie {version('codegenie')}, {packages}"
    yield f"- load of the machine before: {load:.1f}"


def _table(section: Section) -> Iterator[str]:
    yield ""
    yield f"## {section.title}"
    yield ""
    yield section.how
    yield ""
    cells = [_HEADINGS, *(row.cells() for row in section.rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for number, row in enumerate(cells):
        yield "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        if number == 0:
            yield "|" + "|".join("-" * (width + 2) for width in widths) + "|"


def _cpu_model() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return next(line.partition(":")[2].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.machine()


def _memory() -> str:
    size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return f"{size / 2**30:.0f} GiB of memory"


def _python() -> str:
    return f"{platform.python_implementation()} {platform.python_version()}"
