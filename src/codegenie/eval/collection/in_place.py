"""Takes what an agent changed in its copy of a case for its answer, if it returned no files itself.

An agent that edits files has done its work in its copy. What it returns beside that stays in its answer.
"""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from codegenie.eval.collection.collecting import collect_folder
from codegenie.eval.collection.document import harness_output
from codegenie.eval.collection.listing import listing_of
from codegenie.eval.collection.records import Collected, original_of
from codegenie.eval.limits import LIMITS
from codegenie.eval.models import BenchCase
from codegenie.eval.ports import CaseStore, KeptWork, SutAnswer, SutFault
from codegenie.eval.sanitising import Redactor

TAIL_CHARACTERS = 4_096
"""How much of what an agent printed is a part of the output that it did not write itself."""


class CopyCollector:
    """Collects from the copies that a store of cases made."""

    def __init__(self, store: CaseStore, redactor: Redactor) -> None:
        self._store = store
        self._redactor = redactor

    async def completed(
        self, case: BenchCase, directory: Path, produced: SutAnswer | SutFault
    ) -> SutAnswer | SutFault:
        """Return what was produced, with what was changed in the copy."""
        words = self._words(produced)
        if words.get("files"):
            return produced
        # In a thread: what an agent left may take seconds, and other cases go on meanwhile.
        return with_changes(produced, words, await asyncio.to_thread(self._collected, case, directory))

    def _words(self, produced: SutAnswer | SutFault) -> dict[str, Any]:
        """Return what the agent said itself; of one that returned nothing, how it ended."""
        if isinstance(produced, SutAnswer):
            return words_of(produced)
        text = produced.log.decode("utf-8", "replace")
        cut = len(produced.log) >= LIMITS.sut_log_bytes
        cleaned = self._redactor.clean_tail(text) if cut else self._redactor.clean(text)
        return {"exit_code": 0, "stdout_tail": cleaned[-TAIL_CHARACTERS:]}

    def _collected(self, case: BenchCase, directory: Path) -> Collected:
        original = original_of(self._store.input_files(case))
        return collect_folder(directory / "input", original)


def words_of(answer: SutAnswer) -> dict[str, Any]:
    """Return what an agent said itself."""
    words: dict[str, Any] = json.loads(answer.output)
    return words


def with_changes(
    produced: SutAnswer | SutFault, words: Mapping[str, Any], collected: Collected
) -> SutAnswer | SutFault:
    """Return what was produced, with what was changed. `words` are what the agent said beside that.

    An agent that returned files has said which ones it means. One that failed has no answer; its work is
    only kept, to be shown.
    """
    if words.get("files") or collected.is_empty:
        return produced
    if isinstance(produced, SutFault) and not produced.returned_nothing:
        return replace(produced, work=kept_work(collected, collected.notes))
    written = harness_output(collected, words)
    work = kept_work(collected, (*collected.notes, *written.notes))
    if isinstance(produced, SutAnswer):
        return replace(produced, output=written.output, work=work)
    # It ended normally, so what it left behind is its answer.
    answer = SutAnswer(written.output, produced.cost_usd, produced.log, produced.account)
    return replace(answer, left_behind=produced.left_behind, work=work)


def kept_work(collected: Collected, notes: tuple[str, ...]) -> KeptWork:
    """Return what is kept beside an output, to be shown."""
    return KeptWork(listing_of(collected, notes), collected.patch.decode(), collected.binaries)
