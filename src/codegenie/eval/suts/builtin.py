"""The harness's own systems under test: one that does nothing and one that knows the solution."""

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from codegenie.eval.bench.copies import read_case_parts
from codegenie.eval.canonical import canonical_json
from codegenie.eval.decoding import decode_json
from codegenie.eval.errors import DecodingRefused
from codegenie.eval.limits import LIMITS
from codegenie.eval.models import SutBoundary, SutIdentity
from codegenie.eval.ports import Reads, SutAnswer, SutCase, SutFault, SutRunner


class OwnSut(SutRunner):
    """What the harness's own systems have in common: they run in the harness and need no preparation."""

    boundary: SutBoundary = "harness"
    wants_input = False
    identity: SutIdentity

    async def prepare(self) -> None:
        """Do nothing: no preparation is needed."""

    async def close(self) -> None:
        """Do nothing: nothing is held open."""


class NullSut(OwnSut):
    """Returns an empty output. Its score is what the bench gives for no work."""

    identity = SutIdentity(spec="null")

    async def ask(self, _case: SutCase, _seconds: float) -> SutAnswer:
        """Return an empty output."""
        return SutAnswer(b"{}", 0.0)


class OracleSut(OwnSut):
    """Applies each case's `solution/`. If it fails a case, the bench cannot measure that case."""

    identity = SutIdentity(spec="oracle")
    reads: Reads = "case"

    def __init__(self, cases: Path, digests: Mapping[str, str]) -> None:
        self._cases = cases
        self._digests = digests

    async def ask(self, case: SutCase, _seconds: float) -> SutAnswer | SutFault:
        """Return the solution in the same form as an agent's change."""
        parts = read_case_parts(self._cases, case.case_id, self._digests[case.case_id], {"solution", "input"})
        solution, before = parts["solution"], parts["input"]
        if not solution:
            return SutFault("sut.exception", "the case has no solution/", 0.0)
        try:
            output = _recorded(solution) or _change(solution, before)
        except DecodingRefused as refusal:
            return SutFault("sut.exception", f"solution: {refusal.message}", 0.0)
        except UnicodeDecodeError:
            return SutFault("sut.exception", "solution: a file is not UTF-8 text", 0.0)
        return SutAnswer(canonical_json(output), 0.0)


def _recorded(solution: Mapping[str, bytes]) -> dict[str, Any] | None:
    if solution.keys() != {"harness_output.json"}:
        return None
    output = decode_json(solution["harness_output.json"], LIMITS.sut_output_bytes)
    if not isinstance(output, dict):
        raise DecodingRefused("harness_output.json is not a JSON object")
    return output


def _change(solution: Mapping[str, bytes], before: Mapping[str, bytes]) -> dict[str, Any]:
    """Put the solution over the input and describe the change in the form of a command's output."""
    changed = {path: content.decode() for path, content in solution.items() if before.get(path) != content}
    lines: list[str] = []
    for path, text in sorted(changed.items()):
        old = before.get(path, b"").decode("utf-8", "replace").splitlines(keepends=True)
        lines += difflib.unified_diff(old, text.splitlines(keepends=True), f"a/{path}", f"b/{path}")
    return {"files": changed, "diff": "".join(lines), "exit_code": 0, "stdout_tail": ""}
