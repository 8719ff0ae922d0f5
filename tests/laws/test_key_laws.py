"""The keys of the outcome store cover what a stage reads: whatever it can see changes, its key changes."""

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from codegenie.eval.bench.copies import CaseSnapshots
from codegenie.eval.bench.digest_list import digest_statuses, write_digests
from codegenie.eval.bench.loading import load_task_class
from codegenie.eval.execution_ports import Judged
from codegenie.eval.models import BenchCase, RunOptions, RunPlan, SutIdentity
from codegenie.eval.ports import SutCase, SutRunner
from codegenie.eval.runner import Runner, RunParts
from codegenie.eval.stopping import Stop
from codegenie.eval.store.reuse import StoredMemory
from codegenie.eval.suts.spec import SutRequest, open_sut
from codegenie.eval.trial import rubric_request, sut_seconds
from tests.support.benches import TASK_CLASS, CaseFiles, write_bench
from tests.support.stores import NoRubrics, NotingSut

OUTPUT = b'{"answer":"it is one"}'
DATA = (
    "input/question.txt",
    "input/deep/er.txt",
    "expected/answer.txt",
    "solution/fix.txt",
    "solution/new.txt",
)
# What the harness parses itself: a change that it still accepts.
LINES = {
    "cases/one/case.toml": "sut_wall_clock_seconds = 77\n",
    "rubric.py": "# said otherwise\n",
    "rubric_lib/more.py": "y = 1\n",
    "failure_modes.yaml": "answer.odd:\n  severity: warn\n  description: new\n",
    "breakdown_keys.py": '    MORE = "more"\n',
    "README.md": "More of it.\n",
}
AGENTS = ("oracle", "null", "python:agent:solve")


Stage = tuple[str, Any, Mapping[str, object]]
"""The name of a stage, all that it can come by, and the key under which its result is kept."""


@dataclass(frozen=True)
class Bench:
    """A task class of one case that has every part."""

    root: Path

    def change(self, name: str, content: bytes) -> bytes:
        """Write a file of the task class and renew the digests; returns what stood there."""
        path = self.root / TASK_CLASS / name
        before = path.read_bytes()
        path.write_bytes(content)
        task_class = load_task_class(TASK_CLASS, bench_root=self.root)
        write_digests(task_class, digest_statuses(task_class))
        return before

    def plan(self) -> RunPlan:
        options = RunOptions(cache_dir=self.root / "cache")
        return Runner().plan(
            task_class_name=TASK_CLASS, bench_root=self.root, out_dir=self.root / "runs", options=options
        )

    def stages(self) -> list[Stage]:
        """Return the stages as they are at this moment."""
        return list(Stages(self.plan()))


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    root = tmp_path_factory.mktemp("keys")
    files = dict.fromkeys(DATA, "as it was\n")
    write_bench(root, cases=[CaseFiles("one", files)])
    (root / TASK_CLASS / "rubric_lib").mkdir()
    (root / TASK_CLASS / "rubric_lib" / "more.py").write_text("x = 1\n", encoding="utf-8")
    return Bench(root)


def tree(room: Path) -> dict[str, tuple[bytes, int]]:
    """Return every file of a room, with its bytes and whether it can be executed."""
    files = sorted(file for file in room.rglob("*") if file.is_file())
    return {str(file.relative_to(room)): (file.read_bytes(), file.stat().st_mode & 0o111) for file in files}


@dataclass(frozen=True)
class Stages:
    """The stages of one case."""

    plan: RunPlan

    @property
    def case(self) -> BenchCase:
        return self.plan.cases[0]

    def memory(self, sut: SutRunner) -> StoredMemory:
        parts = RunParts(self.plan, sut, NoRubrics(), Stop())
        return parts.memory(parts.start(), "a-run", None)

    def sut(self, spec: str) -> SutRunner:
        own = {"oracle", "null"}
        return open_sut(SutRequest(spec), self.plan) if spec in own else NotingSut(SutIdentity(spec=spec))

    def __iter__(self) -> Iterator[Stage]:
        directory = self.plan.out_dir.parent / "rooms"
        directory.mkdir(exist_ok=True)
        store = CaseSnapshots(self.plan.task_class, directory)
        with store.for_sut(self.case) as room:
            seen_by_agents = (tree(room), sut_seconds(self.case, None))
        with store.for_rubric(self.case) as room:
            request = rubric_request(self.case, Judged(OUTPUT))
            judged_by = (dict(self.plan.task_class.taxonomy), self.plan.task_class.breakdown_keys)
            seen_by_rubric = (tree(room), request, judged_by)
        store.close()
        for spec in AGENTS:
            sut = self.sut(spec)
            key = self.memory(sut)._output_key(self.case, 0)  # noqa: SLF001 - the law is about the keys
            # Ours take no room: what they read shows in what they say.
            own = asyncio.run(sut.ask(SutCase("one", TASK_CLASS, "", 0), 5.0))
            yield spec, own if sut.boundary == "harness" else seen_by_agents, key
        yield "rubric", seen_by_rubric, self.memory(NotingSut())._answer_key(self.case, Judged(OUTPUT))  # noqa: SLF001


def covers(before: list[Stage], after: list[Stage]) -> set[str]:
    """Check the law for one change, and return the stages that saw it."""
    saw = set()
    for (name, read, key), (_, read_now, key_now) in zip(before, after, strict=True):
        if read != read_now:
            saw.add(name)
            assert key != key_now, f"what {name} reads has changed, and its key has not"
    return saw


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=st.sampled_from(DATA), text=st.text(st.characters(codec="ascii", min_codepoint=32), max_size=40))
def test_whatever_a_stage_can_see_of_a_case_decides_its_key(bench: Bench, name: str, text: str) -> None:
    before = bench.stages()
    old = bench.change(f"cases/one/{name}", text.encode())
    try:
        saw = covers(before, bench.stages())
    finally:
        bench.change(f"cases/one/{name}", old)
    if text.encode() != old and not name.startswith("solution/"):
        assert "rubric" in saw, "no change goes unseen here: the law is about something"


@pytest.mark.parametrize("name", LINES)
def test_whatever_a_stage_can_see_of_a_task_class_decides_its_key(bench: Bench, name: str) -> None:
    before = bench.stages()
    path = bench.root / TASK_CLASS / name
    old = bench.change(name, path.read_bytes() + LINES[name].encode())
    try:
        saw = covers(before, bench.stages())
    finally:
        bench.change(name, old)
    assert ("rubric" in saw) == (name != "README.md")


def test_the_oracle_reads_more_than_an_agent_is_given(bench: Bench) -> None:
    before = bench.stages()
    old = bench.change("cases/one/solution/fix.txt", b"another way\n")
    try:
        assert covers(before, bench.stages()) == {"oracle"}
    finally:
        bench.change("cases/one/solution/fix.txt", old)


@pytest.mark.parametrize(
    "change",
    [{"harness_version": "9.9.9"}, {"sut_identity_digest": "a" * 64}],
)
def test_the_harness_s_own_agents_are_as_new_as_the_harness(bench: Bench, change: dict[str, str]) -> None:
    stages = Stages(bench.plan())
    memory = stages.memory(stages.sut("oracle"))
    other = replace(memory, start=memory.start.model_copy(update=change))
    assert other._output_key(stages.case, 0) != memory._output_key(stages.case, 0)  # noqa: SLF001
