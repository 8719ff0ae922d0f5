"""A bench of one case with a log and a store, and agents that note whom they were asked about."""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from blake3 import blake3

from codegenie.eval.bench.digest_list import digest_statuses, write_digests
from codegenie.eval.bench.loading import load_task_class
from codegenie.eval.canonical import canonical_json
from codegenie.eval.isolation_proof import IsolationProof
from codegenie.eval.log.open_run import RecordedRun
from codegenie.eval.models import BenchCase, IsolationClass, RunOptions, SutBoundary, SutIdentity
from codegenie.eval.ports import Room, RubricRun, SutAnswer, SutCase, SutFault, SutRunner
from codegenie.eval.runner import Runner, RunParts
from codegenie.eval.stopping import Stop
from codegenie.eval.store.reuse import StoredMemory
from codegenie.eval.suts.spec import OWN_RUNNERS
from tests.support.benches import TASK_CLASS
from tests.support.logs import read_records, record_run


@dataclass
class NotingSut(SutRunner):
    """An agent in a process of its own, as far as the runner knows; it notes whom it was asked about.

    It is entered among the runners of the harness, with all that derive from it: a runner of somebody else
    is taken for code in our process, and no gate would listen to what these tests have to say.
    """

    identity: SutIdentity = field(default_factory=lambda: SutIdentity(spec="command:noting", version="1"))
    boundary: SutBoundary = "process"
    wants_input: bool = True
    answer: str = "it is one"
    asked: list[str] = field(default_factory=list)

    async def prepare(self) -> None:
        """Need nothing."""

    async def ask(self, case: SutCase, seconds: float) -> SutAnswer | SutFault:
        """Answer, and note it."""
        assert seconds > 0
        self.asked.append(f"{case.case_id}#{case.trial}")
        await asyncio.sleep(0)
        return SutAnswer(canonical_json({"answer": self.answer}), 0.25, b"worked on it\n")

    async def close(self) -> None:
        """Hold nothing open."""

    def __init_subclass__(cls) -> None:
        """Enter whatever derives from it."""
        OWN_RUNNERS.add(cls)


OWN_RUNNERS.add(NotingSut)


class FlakySut(NotingSut):
    """Fails when it is asked for the first time, and never again."""

    async def ask(self, case: SutCase, seconds: float) -> SutAnswer | SutFault:
        answer = await super().ask(case, seconds)
        return SutFault("sut.exception", "not today", 0.5) if len(self.asked) == 1 else answer


@dataclass
class Bench:
    """A bench with one case, a store and a log; `run` says what it explained."""

    directory: Path
    sut: NotingSut = field(default_factory=NotingSut)

    @property
    def case(self) -> Path:
        return self.directory / "bench" / TASK_CLASS / "cases" / "one"

    @property
    def store(self) -> Path:
        return self.directory / "cache"

    @property
    def log(self) -> Path:
        return self.directory / "runs"

    def digest(self) -> None:
        task_class = load_task_class(TASK_CLASS, bench_root=self.directory / "bench")
        write_digests(task_class, digest_statuses(task_class))

    def run(self, **options: Any) -> list[str]:  # noqa: ANN401 - any field of RunOptions
        self.explained: list[str] = []
        self.recorded: RecordedRun = record_run(
            self.directory / "bench",
            self.log,
            self.sut,
            runner=Runner(explain=self.explained.append),
            **{"cache_dir": self.store, **options},
        )
        return self.explained

    def reused(self) -> list[str]:
        return [trial["reused"] for trial in read_records(self.log)[-1]["body"]["trials"]]


def tagged(store: Path, body: bytes) -> bytes:
    """Return an entry of a store as its own user can write it: with the tag of the store's key."""
    return body + b"\n" + blake3(body, key=(store / "key").read_bytes()).hexdigest().encode()


class NoRubrics:
    """Stands where rubrics are run, for what only needs to know in which class."""

    isolation_class: IsolationClass = "subprocess"
    proof = IsolationProof(isolation_class="subprocess", kernel="none")
    notes: tuple[str, ...] = ()
    wants_parcel = False

    async def run(self, room: Room, request: bytes, seconds: float) -> RubricRun:
        """Run nothing."""
        raise RuntimeError(f"{room}: {request!r}: {seconds}")

    async def close(self) -> None:
        """Hold nothing."""


def memory_of(bench: Bench) -> tuple[StoredMemory, BenchCase]:
    """Return the memory that the next run of a bench would have, and the case of the bench."""
    plan = Runner().plan(
        task_class_name=TASK_CLASS,
        bench_root=bench.directory / "bench",
        out_dir=bench.log,
        options=RunOptions(cache_dir=bench.store),
    )
    parts = RunParts(plan, bench.sut, NoRubrics(), Stop())
    return parts.memory(parts.start(), "a-run", None), plan.cases[0]
