"""Executes the steps of a case, each in a fresh box without a network, and takes down what came of them."""

import os
from collections.abc import Mapping
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

from codegenie.eval.bench.grammar import read_calls
from codegenie.eval.boxes.box import Box
from codegenie.eval.boxes.interpreters import interpreter_in
from codegenie.eval.boxes.launching import Boxes
from codegenie.eval.boxes.request import AgentStart, BoxEnd, BoxLimits, BoxRequest, BoxView
from codegenie.eval.canonical import canonical_json
from codegenie.eval.errors import BoxFailed, ExecFailed
from codegenie.eval.execute_steps import Program, PythonCalls
from codegenie.eval.execution.calls import Conversation, Reply, hold_in_box
from codegenie.eval.execution.outputs import read_outputs
from codegenie.eval.execution.workspace import Workspace, changes_of, step_file, workspace_of
from codegenie.eval.execution_ports import CaseFile
from codegenie.eval.limits import LIMITS
from codegenie.eval.models import BenchCase
from codegenie.eval.ports import CaseStore
from codegenie.eval.sanitising import Redactor
from codegenie.eval.system.child_files import read_head, stream_file

_WORKER = Path(__file__).with_name("worker_program.py")
_GRACE_SECONDS = 1.0
_NOT_STARTED = "not_started"
# Code of an agent is small against an agent: it needs neither its memory nor its disk.
_LIMITS = BoxLimits(
    processes=128,
    process_memory_bytes=1 << 30,
    memory_total_bytes=2 << 30,
    workspace_bytes=256 << 20,
    workspace_entries=20_000,
    file_bytes=64 << 20,
)


class BoxedExecutor:
    """Executes steps in boxes of one class, which its maker closes."""

    def __init__(
        self, boxes: Boxes, store: CaseStore, redactor: Redactor, secrets: tuple[str, ...] = ()
    ) -> None:
        self._boxes = boxes
        self._store = store
        self._redactor = redactor
        self._interpreter, readable = interpreter_in(boxes.isolation_class)
        self._view = BoxView(readable=readable, secrets=secrets, limits=_LIMITS)

    async def execute(self, case: BenchCase, output: bytes) -> bytes:
        """Execute the steps one after the other; return what came of them by name, as canonical JSON."""
        files, changes = self._store.for_execution(case), changes_of(output)
        room = LIMITS.step_files_bytes
        executions: dict[str, dict[str, Any]] = {}
        for step in case.execute:
            execution = await self._repeated(step, files, workspace_of(step, files, changes), room)
            room -= sum(len(text.encode()) for text in execution["files"].values() if text is not None)
            executions[step.name] = execution
        return canonical_json(executions)

    async def _repeated(
        self, step: PythonCalls | Program, files: Mapping[str, CaseFile], workspace: Workspace, room: int
    ) -> dict[str, Any]:
        """Execute one step. If the box was lost, and only then, it is executed again."""
        for attempt in range(1, LIMITS.attempts + 1):
            try:
                return await self._executed(step, files, workspace, room)
            except BoxFailed:
                if attempt == LIMITS.attempts:
                    raise
        raise RuntimeError("unreachable")

    async def _executed(
        self, step: PythonCalls | Program, files: Mapping[str, CaseFile], workspace: Workspace, room: int
    ) -> dict[str, Any]:
        stdin = step.stdin if isinstance(step, Program) else None
        given = b"" if stdin is None else step_file(files, stdin)
        with ExitStack() as held:
            streams = tuple(held.enter_context(stream_file(each)) for each in (given, b"", b""))
            request = BoxRequest(
                view=self._view,
                workspace=held.enter_context(workspace.packed()),
                agent_files=held.enter_context(_worker_parcel()),
            )
            async with await self._boxes.open(request) as box:
                end, replies = await self._run(step, box, files, streams)
                await box.end_all()
                outputs = step.outputs if isinstance(step, Program) else ()
                texts = read_outputs(box.workspace, outputs, room)
            # Cleaned here, so that what is judged, what is stored and what is judged again are the same.
            execution = {
                "end": end,
                "stdout": self._text(streams[1]),
                "stderr": self._text(streams[2]),
                "files": texts,
                "replies": replies,
            }
            return {name: self._cleaned(value) for name, value in execution.items()}

    async def _run(
        self,
        step: PythonCalls | Program,
        box: Box,
        files: Mapping[str, CaseFile],
        streams: tuple[int, ...],
    ) -> tuple[str, list[Reply]]:
        try:
            if isinstance(step, Program):
                start = AgentStart(step.argv, self._environment(box), streams, step.seconds, _GRACE_SECONDS)
                return _end(await box.run(start)), []
            argv = (self._interpreter, "-s", "-S", "-B", f"{box.agent_path}/{_WORKER.name}")
            start = AgentStart(argv, self._environment(box), streams, step.seconds, _GRACE_SECONDS)
            conversation = Conversation(step, read_calls(step_file(files, step.calls)))
            end = await hold_in_box(conversation, box, start)
            return _end(end), conversation.all_replies()
        except ExecFailed:
            if isinstance(step, PythonCalls):
                raise  # the interpreter was there before: this is a failure of the machine
            return _NOT_STARTED, []

    def _text(self, stream: int) -> str:
        raw, cut = read_head(stream, LIMITS.step_stream_bytes)
        text = raw.decode("utf-8", "replace")
        return self._redactor.clean_head(text) if cut else text

    def _cleaned(self, value: Any) -> Any:  # noqa: ANN401 - what JSON holds
        if isinstance(value, str):
            return self._redactor.clean(value)
        if isinstance(value, dict):
            return {key: self._cleaned(each) for key, each in value.items()}
        return [self._cleaned(each) for each in value] if isinstance(value, list) else value

    def _environment(self, box: Box) -> dict[str, str]:
        """Return the whole environment of a step. No variable is copied from the harness."""
        return {
            # The directory of the workspace is not in it, so no file of the agent replaces a program.
            "PATH": f"{os.path.dirname(self._interpreter)}:/usr/local/bin:/usr/bin:/bin",
            "HOME": box.home_path,
            "TMPDIR": box.tmp_path,
            "LC_ALL": "C.UTF-8",
            "PYTHONHASHSEED": "0",
            "PYTHONDONTWRITEBYTECODE": "1",
        }


def _end(end: BoxEnd) -> str:
    """Return how a step ended. Raises BoxFailed if the box was lost."""
    if end.lost:
        raise BoxFailed("the first process of a box was lost")
    if end.timed_out:
        return "timeout"
    # A program that went over a watched cap was ended by the harness.
    return f"exit:{end.exit_code}" if end.exit_code is not None else f"signal:{end.signal or 'KILL'}"


def _worker_parcel() -> AbstractContextManager[int]:
    parcel = Workspace()
    parcel.lay(_WORKER.name, CaseFile(_WORKER.read_bytes()))
    return parcel.packed()
