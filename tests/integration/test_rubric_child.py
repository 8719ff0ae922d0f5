"""What an honest rubric finds around it: the child's world, seen from inside and written down outside."""

import json
import os
import resource
from pathlib import Path
from typing import Any

import pytest

from codegenie.eval.limits import LIMITS
from codegenie.eval.system.processes import real_interpreter
from tests.support.benches import CaseFiles, outcome, run_bench, write_bench
from tests.support.sampling import one_worker

pytestmark = one_worker(__name__)

PERFECT = 'print(\'{"passed": true, "score": 1, "breakdown": {}, "failure_modes": []}\')\n'

LOOK_AROUND = """\
import json, os, resource, stat, sys
descriptors = sorted(int(name) for name in os.listdir("/proc/self/fd"))
entries = sorted(os.path.join(base, name)[2:] for base, _, names in os.walk(".") for name in names)
facts = {
    "environment": dict(os.environ),
    "argv": sys.orig_argv,
    "flags": [sys.flags.no_user_site, sys.flags.no_site, sys.flags.dont_write_bytecode, sys.flags.isolated],
    "path": sys.path,
    "modules": sorted(name for name in sys.modules if name.startswith(("site", "codegenie"))),
    "cwd": os.getcwd(),
    "mode": stat.S_IMODE(os.stat(".").st_mode),
    "entries": entries,
    "descriptors": descriptors,
    "limits": {n: resource.getrlimit(getattr(resource, n)) for n in dir(resource) if n.startswith("RLIMIT")},
    "session_leader": os.getsid(0) == os.getpid(),
    "status": dict(line.split(":\\t", 1) for line in open("/proc/self/status").read().splitlines()),
    "umask": os.umask(0o077),
    "request": json.load(sys.stdin),
    "hash": hash("set order must not decide a score"),
}
try:
    os.open("/dev/tty", os.O_RDWR)
    facts["terminal"] = True
except OSError:
    facts["terminal"] = False
with open(ORACLE, "w") as file:
    json.dump(facts, file)
"""


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    base = tmp_path_factory.mktemp("facts")
    oracle = base / "facts.json"
    case = CaseFiles("looked-at", files={"solution/harness_output.json": "{}", "input/deep/er/file.txt": "x"})
    root = write_bench(base / "bench", f"ORACLE = {str(oracle)!r}\n{LOOK_AROUND}{PERFECT}", [case])
    held = os.open("/dev/null", os.O_RDONLY)
    os.set_inheritable(held, True)  # noqa: FBT003 - the standard library's signature
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SOME_API_KEY", "not for rubrics")
        patch.setenv("PYTHONPATH", "/nowhere")
        report = run_bench(root)
    os.close(held)
    assert report.passed_count == 1
    found: dict[str, Any] = json.loads(oracle.read_text())
    return found


def test_its_environment_is_exactly_four_variables(facts: dict[str, Any]) -> None:
    assert facts["environment"] == {
        "PYTHONHASHSEED": "0",
        "LC_ALL": "C.UTF-8",
        "PATH": "/usr/bin:/bin",
        "TMPDIR": facts["cwd"],
    }


def test_it_is_the_real_interpreter_without_site_user_site_or_bytecode(facts: dict[str, Any]) -> None:
    assert facts["argv"] == [real_interpreter(), "-s", "-S", "-B", "rubric.py"]
    assert not Path(real_interpreter()).is_symlink()
    assert facts["flags"] == [1, 1, 1, 0]
    assert facts["modules"] == []
    assert facts["path"][0] == facts["cwd"]
    assert [entry for entry in facts["path"] if "site-packages" in entry or "nowhere" in entry] == []


def test_its_directory_is_private_and_holds_no_solution(facts: dict[str, Any]) -> None:
    assert facts["mode"] == 0o700
    assert facts["umask"] == 0o077
    assert facts["entries"] == [
        "codegenie_rubric.py",
        "expected/answer.txt",
        "input/deep/er/file.txt",
        "input/question.txt",
        "rubric.py",
    ]
    assert not Path(facts["cwd"]).exists()
    assert "looked-at" not in facts["cwd"]


def test_it_inherits_no_descriptor_but_its_three_streams(facts: dict[str, Any]) -> None:
    # The fourth is the one that lists the directory.
    assert facts["descriptors"] == [0, 1, 2, 3]


def test_it_leads_a_session_without_a_terminal(facts: dict[str, Any]) -> None:
    assert facts["session_leader"]
    assert not facts["terminal"]


def test_no_program_that_it_starts_gains_privileges(facts: dict[str, Any]) -> None:
    assert facts["status"]["NoNewPrivs"] == "1"


def test_its_limits_are_those_of_the_policy(facts: dict[str, Any]) -> None:
    policy = {
        "RLIMIT_CORE": 0,
        "RLIMIT_AS": LIMITS.child_address_space_bytes,
        "RLIMIT_FSIZE": LIMITS.child_file_bytes,
        "RLIMIT_NOFILE": LIMITS.child_open_files,
        "RLIMIT_CPU": 60 + LIMITS.child_cpu_spare_seconds,
    }
    for name, value in policy.items():
        _, ours = resource.getrlimit(getattr(resource, name))
        expected = value if ours == resource.RLIM_INFINITY else min(value, ours)
        soft, hard = facts["limits"][name]
        assert soft == expected, name
        assert expected <= hard <= expected + (5 if name == "RLIMIT_CPU" else 0), name


def test_its_request_is_the_case_and_the_output_and_nobody(facts: dict[str, Any]) -> None:
    assert facts["request"] == {
        "protocol": 1,
        "case": {
            "case_id": "looked-at",
            "task_class": "built-class",
            "disposition": "positive",
            "difficulty": "easy",
            "source": "curated",
            "curation_class": "held-out",
            "family": "looked-at",
            "added_at": "2026-11-15",
            "last_validated_at": "2026-11-15",
            "rubric_wall_clock_seconds": 60,
            "sut_wall_clock_seconds": 1800,
        },
        "input_dir": "input",
        "expected_dir": "expected",
        "harness_output": {"answer": "it is looked-at"},
    }


def test_hashes_are_the_same_in_every_child(tmp_path: Path, facts: dict[str, Any]) -> None:
    oracle = tmp_path / "facts.json"
    root = write_bench(tmp_path / "bench", f"ORACLE = {str(oracle)!r}\n{LOOK_AROUND}{PERFECT}")
    run_bench(root)

    assert json.loads(oracle.read_text())["hash"] == facts["hash"]


HONEST_HELPERS = {
    "a pool of processes": """
from multiprocessing import Pool
if __name__ == "__main__":
    with Pool(2) as pool:
        assert pool.map(abs, [-1, -2]) == [1, 2]
""",
    "a lock whose tracker notices our end by itself": """
import multiprocessing
if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    lock, queue = context.Lock(), context.SimpleQueue()
    from multiprocessing import shared_memory
    block = shared_memory.SharedMemory(create=True, size=10)
    block.close()
    block.unlink()
""",
    "a program that it waits for": """
import subprocess
assert subprocess.run(["/bin/sh", "-c", "echo hello"], capture_output=True).stdout == b"hello\\n"
""",
    "threads": """
import threading
threads = [threading.Thread(target=sum, args=(range(1000),)) for _ in range(8)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
""",
    "a daemon thread that never ends": """
import threading, time
threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
""",
}


@pytest.mark.parametrize("means", HONEST_HELPERS)
def test_an_honest_rubric_may_use_other_processes_and_threads(tmp_path: Path, means: str) -> None:
    root = write_bench(tmp_path, HONEST_HELPERS[means] + f"if __name__ == '__main__':\n    {PERFECT}")

    score = run_bench(root).per_case[0][1]
    assert (score.passed, score.failure_modes) == (True, ())


def test_a_rubric_that_compiles_what_is_no_python_is_malformed_by_name(tmp_path: Path) -> None:
    report = run_bench(write_bench(tmp_path, "compile('def broken(:', 'x', 'exec')\n"))

    code, detail = outcome(report, "one")
    assert code == "rubric.malformed_output"
    assert detail is not None
    assert detail.startswith("exit:1: SyntaxError")


def test_a_rubric_may_bring_a_library_and_use_the_authors_module(tmp_path: Path) -> None:
    source = (
        "from codegenie_rubric import emit, read_case\nfrom rubric_lib.grading import grade\n"
        "request = read_case()\nprint('stray')\n"
        "score = grade(request.harness_output['answer'])\nemit(passed=True, score=score)\n"
    )
    root = write_bench(tmp_path, source)
    library = root / "built-class" / "rubric_lib"
    library.mkdir()
    (library / "grading.py").write_text("def grade(text):\n    return 1.0 if text else 0.5\n")

    assert run_bench(root).per_case[0][1].score == 1.0
