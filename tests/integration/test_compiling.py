"""Sources are compiled and never run, in a child that a hostile source may take down alone."""

import json
import os
import resource
import signal
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from codegenie.eval.bench.loading import load_task_class
from codegenie.eval.errors import HarnessFailure, RubricInvalid
from codegenie.eval.fence import inspect_paths
from codegenie.eval.limits import LIMITS
from codegenie.eval.system import compiling
from codegenie.eval.system.child_files import read_head, stream_file
from codegenie.eval.system.compiling import SourceProblem, source_problems
from tests.integration.forked import load_program, run_program
from tests.support.benches import TASK_CLASS, write_bench
from tests.support.commands import call

SLOW = b"x = f'" + b"{a}" * 300_000 + b"'\n"
"""Keeps the compiler busy for more than a minute."""


@pytest.fixture(autouse=True)
def _forgetful() -> Iterator[None]:
    source_problems.cache_clear()
    yield
    source_problems.cache_clear()


def lowered(monkeypatch: pytest.MonkeyPatch, **limits: float) -> None:
    monkeypatch.setattr(compiling, "LIMITS", replace(LIMITS, **limits))  # type: ignore[arg-type]


def test_nothing_of_a_source_runs(tmp_path: Path) -> None:
    witness = tmp_path / "witness"
    deed = f"open({str(witness)!r}, 'w').close()\n".encode()

    assert source_problems((("rubric.py", deed),)) == ()
    assert not witness.exists()
    exec(deed)  # noqa: S102 - the control: it would have left its witness
    assert witness.exists()


def test_every_source_is_answered_with_its_line() -> None:
    sources = (
        ("a.py", b"x = 1\n"),
        ("b.py", b"x = 1\ny = = 2\n"),
        ("c.py", b""),
        ("d.py", b"return 1\n"),
        ("e.py", b"x = '\0'\n"),
        ("f.py", b"# \xff\n"),
        ("g.py", b"x = " + b"-" * 500_000 + b"1"),
        ("h.py", b"x = '\xe2\x80\xae\n"),
    )
    problems = {problem.path: problem for problem in source_problems(sources)}

    assert sorted(problems) == ["b.py", "d.py", "e.py", "f.py", "g.py", "h.py"]
    assert problems["b.py"] == SourceProblem("b.py", 2, "is not Python: invalid syntax")
    assert problems["d.py"] == SourceProblem("d.py", 1, "is not Python: 'return' outside function")
    assert "null bytes" in problems["e.py"].message
    assert "nested too deeply" in problems["g.py"].message
    assert problems["f.py"] == SourceProblem("f.py", 1, "is not UTF-8")
    assert all(problem.message.isprintable() for problem in problems.values())


def test_a_source_that_keeps_the_compiler_busy_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    lowered(monkeypatch, compile_cpu_seconds=1)

    assert source_problems((("a.py", b"x = 1\n"), ("b.py", SLOW), ("c.py", b"= =\n"))) == (
        SourceProblem("b.py", None, "needs more than 1 s of processor time to be compiled"),
    )


def test_a_source_cannot_take_more_memory_than_its_child_has(monkeypatch: pytest.MonkeyPatch) -> None:
    lowered(monkeypatch, compile_memory_bytes=256 << 20)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    (problem,) = source_problems((("a.py", b"x = [" + b"y," * 500_000 + b"]\n"),))

    assert problem.message == "is nested too deeply, or needs too much memory to be compiled"
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 << 10


def test_a_harness_with_less_memory_than_the_child_may_have_can_compile(tmp_path: Path) -> None:
    """`ulimit -v` is a hard limit, which a child cannot raise."""
    program = (
        "import resource, sys\n"
        "resource.setrlimit(resource.RLIMIT_AS, (900 << 20, 900 << 20))\n"
        "resource.setrlimit(resource.RLIMIT_CPU, (10, 10))\n"
        "from codegenie.eval.system.compiling import source_problems\n"
        "print(source_problems((('a.py', b'x = 1'),)))\n"
    )
    done = call([sys.executable, "-c", program], tmp_path)

    assert (done.returncode, done.stdout) == (0, "()\n"), done.stderr


@pytest.mark.parametrize(
    ("number", "blamed"), [(signal.SIGSEGV, True), (signal.SIGABRT, True), (signal.SIGKILL, False)]
)
def test_a_crash_is_the_sources_fault_and_a_kill_from_outside_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals, blamed: bool
) -> None:
    program = tmp_path / "child.py"
    program.write_text(f"import os\nprint('null', flush=True)\nos.kill(os.getpid(), {int(number)})\n")
    monkeypatch.setattr(compiling, "_CHILD_PROGRAM", program)
    sources = (("a.py", b""), ("b.py", b""))

    if blamed:
        assert source_problems(sources) == (SourceProblem("b.py", None, "crashes the compiler"),)
    else:
        with pytest.raises(HarnessFailure, match="the compiler ended with -9"):
            source_problems(sources)


@pytest.mark.parametrize("said", ["", "print('[1]')", "print('{')", "print('null\\nnull')", "raise OSError"])
def test_a_child_that_answers_something_else_is_our_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    program = tmp_path / "child.py"
    program.write_text(said)
    monkeypatch.setattr(compiling, "_CHILD_PROGRAM", program)

    with pytest.raises(HarnessFailure, match="cannot compile the rubric"):
        source_problems((("a.py", b""),))


def test_a_machine_that_is_too_busy_or_has_no_process_is_no_fault_of_a_source(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lowered(monkeypatch, compile_seconds=0.5)
    with pytest.raises(HarnessFailure, match=r"not done within 0\.5 s"):
        source_problems((("a.py", SLOW),))
    monkeypatch.setattr("sys.executable", "/nowhere/python")
    with pytest.raises(HarnessFailure, match="cannot compile the rubric"):
        source_problems((("b.py", b""),))


@pytest.mark.parametrize(
    ("file", "where"), [("rubric.py", "rubric.py:2"), ("rubric_lib/deep/x.py", "rubric_lib/deep/x.py:2")]
)
def test_a_bench_with_such_a_rubric_does_not_load_and_is_found(tmp_path: Path, file: str, where: str) -> None:
    directory = write_bench(tmp_path) / TASK_CLASS
    (directory / file).parent.mkdir(parents=True, exist_ok=True)
    (directory / file).write_text("x = 1\ny = = 2\n")

    with pytest.raises(RubricInvalid) as refusal:
        load_task_class(TASK_CLASS, bench_root=tmp_path)
    assert refusal.value.where == f"{directory}/{where}"
    assert refusal.value.exit_code == 2
    (finding,) = inspect_paths([directory]).findings
    assert (finding.rule, finding.path, finding.line) == ("F011", f"{directory}/{file}", 2)


def test_the_child_answers_each_source_on_a_line() -> None:
    sources = [b"x = 1\n", b"= =\n", b"x = '\0'\n", b"x = " + b"+".join([b"y"] * 100_000)]
    framed = json.dumps([len(source) for source in sources]).encode() + b"\n" + b"".join(sources)
    log = os.open(os.devnull, os.O_RDWR)
    with stream_file(framed) as stdin, stream_file() as stdout, pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["system/compile_program.py", '{"RLIMIT_CORE": 0}'])
        assert run_program("system/compile_program.py", [stdin, stdout, log]) == 0
        answers = [json.loads(line) for line in read_head(stdout, 10_000)[0].splitlines()]
    os.close(log)

    assert [answer and answer["line"] for answer in answers] == [None, 1, None, None]
    assert load_program("system/compile_program.py").problem_of(b"x = 1") is None
