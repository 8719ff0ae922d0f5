"""A caller's object that raises, blocks, exits, lies or clings to life, beside one that answers."""

import asyncio
import math
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, NoReturn, cast
from unittest.mock import AsyncMock

import pytest

from codegenie.eval.models import BenchRunReport
from codegenie.eval.ports import SutAnswer, SutCase, SutFault, SutResult, SystemUnderTest
from codegenie.eval.suts.in_process import InProcessSut
from tests.support.benches import CaseFiles, canonical_score, outcome, right_answer, run_bench, write_bench
from tests.support.sampling import one_worker

pytestmark = one_worker(__name__)

ODD, HONEST = "m-odd", ("a-first", "z-last")
ANSWER = {"answer": f"it is {ODD}"}
Deed = Callable[[SutCase], Awaitable[Any]]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    odd = CaseFiles(ODD, fields={"sut_wall_clock_seconds": 1})
    return write_bench(tmp_path_factory.mktemp("suts"), cases=[odd, *HONEST])


@pytest.fixture(scope="module")
def alone(root: Path) -> BenchRunReport:
    return run_bench(root, only=HONEST)


def run_with(root: Path, deed: Deed | Callable[[SutCase], Any]) -> BenchRunReport:
    """Run the bench against a system that does `deed` on one case and answers the others."""

    async def system(case: SutCase) -> Mapping[str, Any]:
        if case.case_id != ODD:
            return await right_answer(case)
        returned = deed(case)
        return cast("Mapping[str, Any]", await returned if asyncio.iscoroutine(returned) else returned)

    return run_bench(root, system)


def check_siblings(report: BenchRunReport, alone: BenchRunReport) -> None:
    for case_id, score in alone.per_case:
        assert score.passed
        assert canonical_score(dict(report.per_case)[case_id]) == canonical_score(score)


class WithABrokenText(Exception):  # noqa: N818 - what matters is its text
    def __str__(self) -> str:
        raise SystemExit("even my text leaves")


class WithBrokenNotes(Exception):  # noqa: N818 - likewise
    @property
    def __notes__(self) -> list[str]:  # type: ignore[override]
        raise SystemExit("even my notes leave")


class OwnBase(BaseException):
    pass


def raising(error: BaseException) -> Callable[[SutCase], NoReturn]:
    def deed(_case: SutCase) -> NoReturn:
        raise error

    return deed


def place_of(function: Callable[..., object]) -> str:
    """Return where the inner function of `raising` raises."""
    code = function.__code__
    return f"{Path(code.co_filename).relative_to(Path.cwd())}:{code.co_firstlineno + 2}"


RAISED: list[tuple[BaseException, str]] = [
    (ValueError("no\nidea\x1b[31m"), "ValueError: no idea\ufffd[31m"),
    (SystemExit(0), "SystemExit: 0"),
    (SystemExit("bye"), "SystemExit: bye"),
    (KeyboardInterrupt(), "KeyboardInterrupt"),
    (asyncio.CancelledError(), "CancelledError"),
    (GeneratorExit(), "GeneratorExit"),
    (StopIteration(3), "RuntimeError: coroutine raised StopIteration"),
    (TimeoutError("mine"), "TimeoutError: mine"),
    (MemoryError(), "MemoryError"),
    (OwnBase("odd"), "OwnBase: odd"),
    (WithABrokenText(), "WithABrokenText: (its message cannot be shown)"),
    (WithBrokenNotes(), "WithBrokenNotes"),
]


def test_a_secret_in_an_exception_is_redacted(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "sk-live-0123456789abcdef")
    report = run_with(root, raising(KeyError("sk-live-0123456789abcdef")))

    assert outcome(report, ODD) == ("sut.exception", f"KeyError: '[redacted]' ({place_of(raising)})")


class EqualToAnything(str):
    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 0

    def __str__(self) -> str:
        return ANSWER["answer"]


class Unending(Mapping[str, Any]):
    def __getitem__(self, key: str) -> Any:  # noqa: ANN401 - any value
        return key

    def __len__(self) -> int:
        return 1

    def __iter__(self) -> Iterator[str]:
        threading.Event().wait()
        return iter(())


def cyclic() -> dict[str, Any]:
    value: dict[str, Any] = {}
    value["again"] = value
    return value


NONSENSE: list[tuple[object, str]] = [
    (None, "NothingReturned: returned None, not a mapping"),
    ([1], "TypeError: returned list, not a mapping"),
    ("{}", "TypeError: returned str, not a mapping"),
    ({"answer": b"x"}, "TypeError: returned a bytes, which JSON does not have"),
    ({"answer": {1}}, "TypeError: returned a set, which JSON does not have"),
    ({"answer": math.nan}, "ValueError: Out of range float values are not JSON compliant"),
    ({"answer": -math.inf}, "ValueError: Out of range float values are not JSON compliant"),
    ({1: "x"}, "TypeError: returned a mapping with the key 1, not a string"),
    (
        {"a": [{None: 1}]},
        "TypeError: returned a mapping with the key None, not a string",
    ),
    (cyclic(), "ValueError: returned a value that is nested more than 32"),
    ({"answer": "\ud800"}, "UnicodeEncodeError: 'utf-8' codec can't encode character"),
    (
        {"a": [[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]},
        "ValueError: returned a value that is nested more than 32",
    ),
    ({"a": "x" * (17 << 20)}, "ValueError: returned 17825"),
    ({"answer": object()}, "TypeError: returned a object, which JSON does not have"),
    (print, "TypeError: returned builtin_function_or_method, not a mapping"),
    (SutResult(ANSWER, cost_usd=math.nan), "ValueError: Out of range float"),
    (SutResult(ANSWER, cost_usd=-0.01), "cost_usd: not a number from 0 to 1e+09"),
    (
        SutResult(ANSWER, cost_usd=1.7e308),
        "cost_usd: not a number from 0 to 1e+09",
    ),
    (SutResult(ANSWER, cost_usd=True), "cost_usd: not a number from 0 to 1e+09"),
    (
        SutResult(ANSWER, cost_usd=cast("float", "1")),
        "cost_usd: not a number from 0 to 1e+09",
    ),
    (SutResult(cast("Any", None)), "NothingReturned: returned None, not a mapping"),
]


def returning(value: object) -> Callable[[SutCase], object]:
    return lambda _case: value


def late(error: BaseException) -> Deed:
    async def deed(case: SutCase) -> NoReturn:
        await asyncio.sleep(0)
        raising(error)(case)

    return deed


# All of them in one run, each on a case of its own, beside the honest ones.
DEEDS: dict[str, tuple[Callable[[SutCase], Any], str]] = {
    **{f"raised-{n}": (raising(error), said) for n, (error, said) in enumerate(RAISED)},
    **{f"raised-late-{n}": (late(error), said) for n, (error, said) in enumerate(RAISED)},
    **{f"returned-{n}": (returning(value), said) for n, (value, said) in enumerate(NONSENSE)},
}


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory) -> tuple[BenchRunReport, BenchRunReport]:
    """Return the report on all the deeds beside honest cases, and that on the honest cases alone."""
    root = write_bench(tmp_path_factory.mktemp("deeds"), cases=[*DEEDS, *HONEST])

    async def system(case: SutCase) -> Mapping[str, Any]:
        if case.case_id not in DEEDS:
            return await right_answer(case)
        returned = DEEDS[case.case_id][0](case)
        return cast("Mapping[str, Any]", await returned if asyncio.iscoroutine(returned) else returned)

    return run_bench(root, system), run_bench(root, only=HONEST)


@pytest.mark.parametrize("deed", DEEDS)
def test_whatever_is_raised_or_returned_instead_is_an_exception_of_the_sut(
    together: tuple[BenchRunReport, BenchRunReport], deed: str
) -> None:
    code, detail = outcome(together[0], deed)

    assert code == "sut.exception"
    assert detail is not None
    assert detail.startswith(DEEDS[deed][1])


def test_the_siblings_of_all_that_score_the_same_bytes_as_alone(
    together: tuple[BenchRunReport, BenchRunReport],
) -> None:
    check_siblings(*together)


def test_a_string_that_is_equal_to_anything_is_only_its_characters(root: Path) -> None:
    report = run_with(root, lambda _case: {"answer": EqualToAnything("wrong")})

    assert not dict(report.per_case)[ODD].passed


async def swallows_its_cancellation(_case: SutCase) -> None:
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            continue


async def answers_its_cancellation(_case: SutCase) -> Mapping[str, Any]:
    try:
        await asyncio.sleep(3600)
    except asyncio.CancelledError:
        return ANSWER
    return {}


def answers_late(_case: SutCase) -> Mapping[str, Any]:
    time.sleep(1.2)
    return ANSWER


def answers_after_a_while(_case: SutCase) -> Mapping[str, Any]:
    time.sleep(0.4)
    return ANSWER


def waits_for_ever(_case: SutCase) -> None:
    threading.Event().wait()


@pytest.mark.parametrize(
    "deed",
    [
        waits_for_ever,
        swallows_its_cancellation,
        answers_its_cancellation,
        answers_late,
        lambda _case: Unending(),
    ],
    ids=["blocks", "swallows", "answers when cancelled", "late", "blocks while it is read"],
)
def test_a_sut_without_a_result_in_time_has_timed_out_and_holds_up_nobody(
    root: Path, alone: BenchRunReport, deed: Callable[[SutCase], Any]
) -> None:
    started = time.monotonic()
    report = run_with(root, deed)

    assert time.monotonic() - started < 60
    assert outcome(report, ODD) == ("sut.timeout", "no result within 1 s")
    check_siblings(report, alone)


def test_a_late_result_does_not_count_even_when_our_own_loop_was_busy() -> None:
    async def ask() -> SutAnswer | SutFault:
        sut = InProcessSut(cast("SystemUnderTest", answers_after_a_while))
        asking = asyncio.ensure_future(sut.ask(SutCase("c", "t", "", 0), 0.2))
        await asyncio.sleep(0.05)
        time.sleep(0.8)  # noqa: ASYNC251 - the point of the test
        return await asking

    assert asyncio.run(ask()) == SutFault("sut.timeout", "no result within 0.2 s")


def test_an_early_result_counts_even_when_our_own_loop_was_busy_past_the_deadline() -> None:
    async def ask() -> SutAnswer | SutFault:
        sut = InProcessSut(right_answer)
        asking = asyncio.ensure_future(sut.ask(SutCase("c", "t", "", 0), 0.3))
        await asyncio.sleep(0)
        time.sleep(0.6)  # noqa: ASYNC251 - the point of the test
        return await asking

    assert asyncio.run(ask()) == SutAnswer(b'{"answer":"it is c"}', None)


def test_a_call_that_is_cancelled_before_it_begins_never_begins() -> None:
    seen: list[str] = []

    def system(case: SutCase) -> Mapping[str, Any]:
        seen.append(case.case_id)
        return {}

    async def ask() -> None:
        sut = InProcessSut(cast("SystemUnderTest", system))
        await sut.ask(SutCase("first", "t", "", 0), 5)
        busy = threading.Event()
        thread = sut._idle[0]  # noqa: SLF001 - to keep its one thread busy
        thread._calls.put((SutCase("blocker", "t", "", 0), cast("Any", _Blocker(busy))))  # noqa: SLF001
        asking = asyncio.ensure_future(sut.ask(SutCase("second", "t", "", 0), 5))
        await asyncio.sleep(0.05)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        busy.set()
        await asyncio.sleep(0.1)

    asyncio.run(ask())
    assert seen == ["first"]


class _Blocker:
    """Stands where a future stands and holds the thread until it is told not to."""

    def __init__(self, busy: threading.Event) -> None:
        self._busy = busy

    def set_running_or_notify_cancel(self) -> bool:
        self._busy.wait()
        return False


def test_a_sut_learns_four_things_and_not_what_is_expected(root: Path) -> None:
    seen: list[SutCase] = []
    listings: list[list[str]] = []

    def look(case: SutCase) -> Mapping[str, Any]:
        seen.append(case)
        base = Path(case.input_dir).parent
        listings.append(sorted(str(path.relative_to(base)) for path in base.rglob("*")))
        return {}

    run_bench(root, cast("SystemUnderTest", look), only=[ODD], trials=2)

    assert [field.name for field in fields(SutCase)] == ["case_id", "task_class", "input_dir", "trial"]
    assert sorted(case.trial for case in seen) == [0, 1]
    assert {(case.case_id, case.task_class) for case in seen} == {(ODD, "built-class")}
    assert listings == [["input", "input/question.txt"]] * 2
    assert len({case.input_dir for case in seen}) == 2
    assert not any(Path(case.input_dir).exists() for case in seen)


def test_a_cost_that_was_reported_is_added_up(root: Path) -> None:
    report = run_bench(
        root, cast("SystemUnderTest", lambda _case: SutResult({}, cost_usd=0.5, usage={"in": 1}))
    )

    assert [score.cost_usd for _, score in report.per_case] == [0.5, 0.5, 0.5]
    assert report.total_cost_usd == 1.5


def test_the_report_says_that_the_sut_ran_in_our_process(root: Path) -> None:
    report = run_bench(root, only=HONEST)

    assert report.sut_boundary == "in-process"
    assert report.sut.spec == "in-process:tests.support.benches.right_answer"


@pytest.mark.parametrize(
    "deed", ["threading.Event().wait()", "time.sleep(0.6)", "time.sleep(0.6) or 1 / 0", "sys.exit('bye')"]
)
def test_threads_that_were_left_behind_are_neither_waited_for_nor_heard_of(root: Path, deed: str) -> None:
    script = f"""
        import sys, threading, time
        sys.path.insert(0, {str(Path(__file__).parents[2])!r})
        from pathlib import Path
        from tests.support.benches import run_bench
        report = run_bench(Path({str(root)!r}), lambda case: {deed}, timeout_seconds=0.2)
        time.sleep(1)
        print(report.sut_fault_count)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, "3\n", "")


def test_an_object_that_only_looks_like_a_runner_is_called_and_names_no_boundary(tmp_path: Path) -> None:
    """A mock has every attribute there is; it is still an object of the caller's."""
    mock = AsyncMock(return_value={"answer": "it is one"}, boundary="process", wants_input=False)
    report = run_bench(write_bench(tmp_path), mock)

    assert report.sut_boundary == "in-process"
    assert report.sut.spec.startswith("in-process:")
    assert report.passed_count == 1
