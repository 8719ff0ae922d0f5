"""A run that died with two of its three trials measured, to be resumed after somebody was at its journal."""

import json
import shutil
from pathlib import Path
from typing import Any

from codegenie.eval.log.open_run import RecordedRun
from codegenie.eval.ports import SutCase
from tests.support.benches import ECHO_RUBRIC, write_bench
from tests.support.logs import VERDICTS, read_records, record_run, stopped_run, verified, write_journal

CASES = sorted(VERDICTS)


class Place:
    """A dead run with two of its three trials finished, and a count of what is asked when it is resumed."""

    def __init__(self, directory: Path) -> None:
        self.root = write_bench(directory / "bench", ECHO_RUBRIC, VERDICTS)
        self.log = directory / "runs"
        self.cache = directory / "cache"
        stopped_run(self.root, self.log, 2, cache_dir=self.cache)
        shutil.rmtree(self.cache)
        (self.journal,) = (self.log / "journal").iterdir()
        self.asked: list[str] = []

    def lines(self) -> list[bytes]:
        return self.journal.read_bytes().splitlines(keepends=True)

    def values(self) -> list[dict[str, Any]]:
        return [json.loads(line.split(b" ", 1)[1]) for line in self.lines()]

    def end_of(self, trials: int) -> int:
        """Return how many lines the journal has up to the end of so many trials."""
        ends = [number for number, value in enumerate(self.values(), 1) if "answer" in value]
        return ends[trials - 1] if trials else 1

    def write(self, values: list[dict[str, Any]]) -> None:
        write_journal(self.journal, values)

    def resume(self, **options: Any) -> RecordedRun:  # noqa: ANN401 - any field of RunOptions
        async def candid(case: SutCase) -> dict[str, Any]:
            self.asked.append(case.case_id)
            return VERDICTS[case.case_id]

        candid.__module__, candid.__qualname__ = "tests.support.logs", "candid"
        done = record_run(self.root, self.log, candid, **{"cache_dir": self.cache, **options})
        verified(self.log)
        return done

    def kinds(self) -> list[str]:
        return [record["kind"] for record in read_records(self.log)]


def measured(values: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the lines of a journal that are evidence of a trial."""
    return [value for value in values if "answer" in value]


RESUMED = ["run.started", "run.resumed", "run.finished"]
ANEW = ["run.started", "run.started", "run.finished"]


def not_resumed(place: Place) -> str:
    reason = "a line of its journal is missing or was changed"
    return f"run {place.journal.name} is not resumed and counts as failed: {reason}"
