"""`python:module:attr` in a process of its own: the same deeds, and what it is given."""

import ast
import asyncio
import json
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from codegenie.eval.errors import SutChanged, SutSpecInvalid
from codegenie.eval.models import BenchRunReport, SutIdentity
from codegenie.eval.runner import Runner
from codegenie.eval.stopping import Stop
from codegenie.eval.suts.python import PythonSut
from tests.hostile.engine.table import ROOT
from tests.support.benches import (
    HONEST_RUBRIC,
    TASK_CLASS,
    CaseFiles,
    canonical_score,
    outcome,
    run_bench,
    write_bench,
)
from tests.support.sampling import one_worker

pytestmark = one_worker(__name__)

DEEDS = ROOT / "tests" / "hostile" / "attackers" / "agent_program.py"
LONG_SECRET = "Zq7" * 30
HONEST = ("a-first", "l-middle", "z-last")

EXCEPTION = "sut.exception"
OUTCOMES: dict[str, tuple[str, str]] = {
    "raises": (EXCEPTION, "ValueError: no\ufffd[31m luck (agent.py:{line})"),
    "exits-with-zero": (EXCEPTION, "SystemExit: 0 (agent.py:{line})"),
    "exits-with-a-word": (EXCEPTION, "SystemExit: bye (agent.py:{line})"),
    "leaves-with-zero": (EXCEPTION, "ended without a result"),
    "leaves-with-seven": (EXCEPTION, "exit:7"),
    "interrupts-itself": (EXCEPTION, "KeyboardInterrupt (agent.py:{line})"),
    "cancels-itself": (EXCEPTION, "CancelledError (agent.py:{line})"),
    "crashes": (EXCEPTION, "signal:SEGV"),
    "blocks": ("sut.timeout", "no result within 1 s"),
    "swallows-its-cancellation": ("sut.timeout", "no result within 1 s"),
    "ignores-every-signal": ("sut.timeout", "no result within 1 s"),
    "returns-none": (
        EXCEPTION,
        'NothingReturned: returned None, not a mapping such as {{"files": {{PATH: TEXT}}}}',
    ),
    "returns-a-list": (EXCEPTION, "TypeError: returned list, not a mapping"),
    "returns-nan": (EXCEPTION, "ValueError: Out of range float values are not JSON compliant"),
    "returns-bytes": (EXCEPTION, "TypeError: returned a bytes, which JSON does not have"),
    "returns-odd-keys": (EXCEPTION, "TypeError: returned a mapping with the key 1, not a string"),
    "returns-a-cycle": (
        EXCEPTION,
        "ValueError: returned a value that is nested more than 32 levels deep",
    ),
    "returns-too-much": (
        EXCEPTION,
        "ValueError: returned 17825859 bytes of JSON, more than the 16777216 allowed",
    ),
    "answers-twice": (EXCEPTION, "output: not one JSON document: Extra data: line 1 column 53 (char 52)"),
    "forges-and-raises": (EXCEPTION, "ValueError: after the answer (agent.py:{line})"),
    "repeats-a-secret-key": (EXCEPTION, "output: not one JSON document: a key appears twice"),
    "closes-its-result": (EXCEPTION, "OSError: [Errno 9] Bad file descriptor"),
    "kills-its-parent": (EXCEPTION, "supervisor_killed"),
    "spends-nonsense": (EXCEPTION, "cost_usd: not a number from 0 to 1e+09"),
}
HARMLESS = ("floods-its-log", "leaves-a-daemon", "looks-around", "spends")

RUBRIC = (
    """\
import os, time
if os.path.exists("expected/heartbeat.txt"):
    with open("expected/heartbeat.txt") as file:
        oracle = file.read()
    sizes = [os.path.getsize(oracle + "/heartbeat"), time.sleep(0.1), os.path.getsize(oracle + "/heartbeat")]
    with open(oracle + "/seen-by-rubric", "w") as file:
        file.write(repr(sizes))
"""
    + HONEST_RUBRIC
)


@dataclass(frozen=True)
class Aftermath:
    report: BenchRunReport
    honest: BenchRunReport
    oracle: Path
    agent: Path
    left: list[str]


@pytest.fixture(scope="module")
def aftermath(tmp_path_factory: pytest.TempPathFactory) -> Aftermath:
    base = tmp_path_factory.mktemp("python")
    for name in ("agent", "oracle", "tmp"):
        (base / name).mkdir()
    shutil.copy(DEEDS, base / "agent" / "agent.py")
    daemon = CaseFiles("leaves-a-daemon", files={"expected/heartbeat.txt": str(base / "oracle")})
    short = ("blocks", "swallows-its-cancellation", "ignores-every-signal")
    cases = [
        CaseFiles(name, fields={"sut_wall_clock_seconds": 1} if name in short else {}) for name in OUTCOMES
    ]
    others = [name for name in (*HARMLESS, "forges-on-stdout", *HONEST) if name != "leaves-a-daemon"]
    root = write_bench(base / "bench", RUBRIC, [*cases, daemon, *others])
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(base / "agent")
        patch.setattr(tempfile, "tempdir", str(base / "tmp"))
        patch.setenv("ORACLE", str(base / "oracle"))
        patch.setenv("LONG_API_KEY", LONG_SECRET)
        patch.setenv("OTHER_API_KEY", "never for a sut")
        patch.setenv("LC_PAPER", "C")
        names = ("ORACLE", "LONG_API_KEY")
        honest = run_bench(root, PythonSut("agent:solve", pass_names=names), only=HONEST)
        report = run_bench(root, PythonSut("agent:solve", pass_names=names), concurrency=3)
    return Aftermath(
        report, honest, base / "oracle", base / "agent", [p.name for p in (base / "tmp").iterdir()]
    )


@pytest.mark.parametrize("deed", OUTCOMES)
def test_every_deed_has_its_exact_outcome(aftermath: Aftermath, deed: str) -> None:
    code, detail = OUTCOMES[deed]

    assert outcome(aftermath.report, deed) == (code, detail.format(line=last_line_of(deed)))


def last_line_of(deed: str) -> int:
    """Return the line on which a deed ends, which is the one that raises."""
    for node in ast.parse(DEEDS.read_text(encoding="utf-8")).body:
        if getattr(node, "name", None) == deed.replace("-", "_") and node.end_lineno is not None:
            return node.end_lineno
    return 0


@pytest.mark.parametrize("deed", HARMLESS)
def test_what_is_only_odd_is_judged_by_its_result(aftermath: Aftermath, deed: str) -> None:
    score = dict(aftermath.report.per_case)[deed]

    assert (score.passed, score.failure_modes) == (True, ())


def test_a_result_that_was_printed_is_no_result(aftermath: Aftermath) -> None:
    score = dict(aftermath.report.per_case)["forges-on-stdout"]

    assert (score.passed, score.score, score.failure_modes) == (False, 0.0, ())


@pytest.mark.parametrize("case_id", HONEST)
def test_an_honest_call_scores_the_same_bytes_as_without_the_others(
    aftermath: Aftermath, case_id: str
) -> None:
    with_them, without = (dict(report.per_case)[case_id] for report in (aftermath.report, aftermath.honest))

    assert without.passed
    assert canonical_score(with_them) == canonical_score(without)


def test_a_daemon_is_dead_before_the_rubric_starts(aftermath: Aftermath) -> None:
    before, _, after = json.loads((aftermath.oracle / "seen-by-rubric").read_text().replace("None", "null"))

    assert before > 0, "the daemon never lived: the test proves nothing"
    assert after == before
    assert (aftermath.oracle / "heartbeat").stat().st_size == before


def test_the_faults_are_counted_and_nothing_is_left(aftermath: Aftermath) -> None:
    report = aftermath.report

    assert report.complete
    assert (report.sut_fault_count, report.bench_fault_count) == (len(OUTCOMES), 0)
    assert report.sut_boundary == "process"
    assert report.total_cost_usd is None
    assert dict(report.per_case)["spends"].cost_usd == 0.25
    assert aftermath.left == []


def test_it_is_given_an_allow_list_a_private_home_and_four_facts(aftermath: Aftermath) -> None:
    facts: dict[str, Any] = json.loads((aftermath.oracle / "facts.json").read_text())
    environment = dict(facts["environment"])

    assert environment.pop("HOME") == environment.pop("TMPDIR") == facts["cwd"]
    assert environment.pop("ORACLE") == str(aftermath.oracle)
    assert environment.pop("LONG_API_KEY") == LONG_SECRET
    assert environment.pop("LC_PAPER") == "C"
    assert [
        name for name in environment if name not in {"PATH", "LANG", "LANGUAGE"} and name[:3] != "LC_"
    ] == []
    assert facts["case"] == ["looks-around", TASK_CLASS, f"{facts['cwd']}/input", 0]
    assert facts["entries"] == ["input", "input/question.txt"]
    assert facts["path"] == str(aftermath.agent)
    # Streams, the descriptor of the result, and the one that lists the directory; epoll and its pipe besides.
    assert facts["descriptors"][:4] == [0, 1, 2, 3]
    assert not Path(facts["cwd"]).exists()


def prepared(reference: str, version: str | None = None) -> SutIdentity:
    """Return the identity of an agent in the current directory."""

    async def prepare() -> SutIdentity:
        sut = PythonSut(reference, version=version)
        try:
            await sut.prepare()
            return sut.identity
        finally:
            await sut.close()

    return asyncio.run(prepare())


def test_identity_is_spec_version_and_the_digest_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "agent.py").write_text("def solve(case):\n    return {}\n")
    before = prepared("agent:solve", version="7")
    (tmp_path / "agent.py").write_text("def solve(case):\n    return {'a': 1}\n")
    after = prepared("agent:solve", version="7")

    assert (before.spec, before.version) == ("python:agent:solve", "7")
    assert before.digest != after.digest


@pytest.mark.parametrize(
    "deed",
    [
        "open(__file__, 'a').write('# another one\\n')",
        "os.rename(__file__, __file__ + '.bak')",
    ],
    ids=["rewritten", "gone"],
)
def test_a_module_that_is_another_one_after_a_call_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deed: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "agent.py").write_text(
        "import os\n\nhere = os.path.dirname(os.path.abspath(__file__))\n\n\n"
        f"def solve(case):\n    {deed}\n    return {{'answer': f'it is {{case.case_id}}'}}\n"
    )
    root = write_bench(tmp_path / "bench", cases=("one", "two"))

    with pytest.raises(SutChanged, match="python:agent:solve has changed since the run was started"):
        run_bench(root, PythonSut("agent:solve"))


@pytest.mark.parametrize("attribute", ["Configured", "answer_at_once"])
def test_a_class_and_a_plain_function_are_systems_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, attribute: str
) -> None:
    shutil.copy(DEEDS, tmp_path / "agent.py")
    monkeypatch.chdir(tmp_path)
    root = write_bench(tmp_path / "bench")

    assert run_bench(root, PythonSut(f"agent:{attribute}")).passed_count == 1


def test_a_plain_function_may_run_an_event_loop_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "agent.py").write_text(
        "import asyncio\n\n\nasync def answer(case):\n    return {'answer': f'it is {case.case_id}'}\n\n\n"
        "def solve(case):\n    return asyncio.run(answer(case))\n"
    )
    monkeypatch.chdir(tmp_path)
    root = write_bench(tmp_path / "bench")

    assert run_bench(root, PythonSut("agent:solve")).passed_count == 1


def test_an_environment_larger_than_a_socket_arrives_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names = [f"LARGE_{n}" for n in range(6)]
    for name in names:
        monkeypatch.setenv(name, name * 15_000)
    (tmp_path / "agent.py").write_text(
        "import os\n\n\ndef solve(case):\n"
        "    sizes = [len(os.environ[f'LARGE_{n}']) for n in range(6)]\n"
        "    return {'answer': f'it is {case.case_id}' if sizes == [105_000] * 6 else sizes}\n"
    )
    root = write_bench(tmp_path / "bench")

    assert run_bench(root, PythonSut("agent:solve", pass_names=names)).passed_count == 1


BAD_MODULES = {
    "does not compile": ("def solve(:\n", "agent:solve", "SyntaxError: invalid syntax (agent.py:1)"),
    "raises": ("raise ValueError('no\\x1b[31m')\n", "agent:solve", "ValueError: no\ufffd[31m (agent.py:1)"),
    "exits": ("import os\nos._exit(0)\n", "agent:solve", "ended by itself"),
    "lacks the attribute": ("x = 1\n", "agent:solve", "AttributeError"),
    "is not callable": ("solve = 3\n", "agent:solve", "TypeError: agent:solve is not callable"),
    "is not there": ("x = 1\n", "elsewhere:solve", "there is no module 'elsewhere'"),
    "is a package without a file": ("x = 1\n", "empty:solve", "there is no module 'empty'"),
    "is no reference": ("x = 1\n", "agent", "is not python:module:attr"),
    "is a path": ("x = 1\n", "../agent:solve", "is not python:module:attr"),
}


@pytest.mark.parametrize("how", BAD_MODULES)
def test_a_module_that_cannot_serve_is_refused_before_the_first_case(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    source, reference, said = BAD_MODULES[how]
    (tmp_path / "agent.py").write_text(source)
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path)
    root = write_bench(tmp_path / "bench")

    with pytest.raises(SutSpecInvalid) as refusal:
        run_bench(root, PythonSut(reference))
    assert said in str(refusal.value)


def test_a_variable_that_is_not_there_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "agent.py").write_text("def solve(case):\n    return {}\n")
    monkeypatch.chdir(tmp_path)

    with pytest.raises(SutSpecInvalid, match="NOT_EXPORTED"):
        PythonSut("agent:solve", pass_names=["NOT_EXPORTED"])


def test_a_module_that_hangs_while_it_is_imported_can_be_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "agent.py").write_text("import time\ntime.sleep(3600)\n")
    monkeypatch.chdir(tmp_path)
    root = write_bench(tmp_path / "bench")

    async def run() -> BenchRunReport:
        stop = Stop()
        runner = Runner()
        plan = runner.plan(task_class_name=TASK_CLASS, bench_root=root)
        asyncio.get_running_loop().call_later(0.3, stop.everything, "ended by a test")
        return await runner.execute(plan, system_under_test=PythonSut("agent:solve"), stop=stop)

    started = time.monotonic()
    report = asyncio.run(run())

    assert time.monotonic() - started < 60
    assert outcome(report, "one") == ("sut.cancelled", "ended by a test")
    assert not report.complete
