"""What the pages say of the processes of rubrics and agents is what such a process finds.

A rubric of every isolation class, and an agent, look around and try what the pages name. A rubric reports in
the details of failures that take nothing from its score, since it can write nowhere that we could read.
"""

import json
import re
from pathlib import Path
from typing import get_args

import pytest

from codegenie.eval.models import IsolationClass
from tests.support.benches import TASK_CLASS, run_bench, write_bench
from tests.support.commands import call, environment, eval_argv, user_argv
from tests.support.sampling import one_worker

pytestmark = one_worker(__name__)

DOCS = Path(__file__).resolve().parents[2] / "docs"
WIRE = (DOCS / "reference" / "rubric-wire.md").read_text(encoding="utf-8")
PYTHON = (DOCS / "reference" / "python.md").read_text(encoding="utf-8")
CLASSES = get_args(IsolationClass)

LOOK_AROUND = """\
import errno, fcntl, os, resource, socket, sqlite3, subprocess, sys, threading
from codegenie_rubric import emit, read_case

read_case()


def fork():
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)


def locked(lock):
    with open("lock", "w") as file:
        lock(file, fcntl.LOCK_EX)


def in_memory():
    base = sqlite3.connect(":memory:")
    base.execute("CREATE TABLE t (c)")
    return base.serialize()


def read_database():
    with open("whole", "wb") as file:
        file.write(in_memory())
    sqlite3.connect("file:whole?immutable=1", uri=True).execute("SELECT * FROM t").fetchall()


def threads(count):
    end = threading.Event()
    try:
        for _ in range(count):
            threading.Thread(target=end.wait).start()
    finally:
        end.set()


def fill(files, size):
    for number in range(files):
        with open(f"fill-{number}", "wb") as file:
            file.write(bytes(size))


TRIES = {
    "starts a process (`subprocess.run`)": lambda: subprocess.run([sys.executable, "-c", ""], check=True),
    "forks (`os.fork`)": fork,
    "locks a file (`fcntl.flock`)": lambda: locked(fcntl.flock),
    "locks a part of a file (`fcntl.lockf`)": lambda: locked(fcntl.lockf),
    "writes a database (`sqlite3`)": lambda: sqlite3.connect("base").execute("CREATE TABLE t (c)"),
    "keeps a database in memory (`sqlite3`)": in_memory,
    "reads a database file (`sqlite3` with `immutable=1`)": read_database,
    "makes a socket (`socket.socket`)": socket.socket,
    "reads `/etc/passwd`": lambda: open("/etc/passwd").close(),
    "lists `/proc`": lambda: os.listdir("/proc"),
    "asks how large the disk is (`os.statvfs`)": lambda: os.statvfs("."),
    "starts 16 threads": lambda: threads(16),
    "starts 17 threads": lambda: threads(17),
    "writes 60 MiB beside its case": lambda: fill(2, 30 << 20),
    "writes 90 MiB beside its case": lambda: fill(3, 30 << 20),
    "writes 5,000 files": lambda: fill(5_000, 0),
}


def tried(attempt):
    try:
        attempt()
    except Exception as error:
        number = getattr(error, "errno", None)
        return f"`{errno.errorcode[number]}`" if number else f"`{type(error).__name__}`"
    return "works"


facts = [f"variable {name}: {value}" for name, value in os.environ.items()]
facts += [f"directory: {os.getcwd()}", f"core: {resource.getrlimit(resource.RLIMIT_CORE)[0]}"]
facts += [f"{words}: {tried(attempt)}" for words, attempt in TRIES.items()]
emit(passed=True, score=1.0, failures=[("answer.noted", fact) for fact in facts])
"""


@pytest.fixture(scope="module", params=CLASSES)
def seen(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, dict[str, str]]:
    """Return a class and what a rubric saw and tried there."""
    root = write_bench(tmp_path_factory.mktemp(request.param) / "bench", LOOK_AROUND)
    report = run_bench(root, isolation=request.param)
    ((_, score),) = report.per_case
    details = [mode.detail or "" for mode in score.failure_modes]
    assert score.passed, details
    return request.param, dict(detail.split(": ", 1) for detail in details)


def rows(text: str, heading: str) -> dict[str, list[str]]:
    """Return the cells of the table below a heading, by the first one."""
    _, found, rest = text.partition(f"\n### {heading}\n")
    assert found, f"there is no section {heading!r}"
    lines = [line for line in re.split(r"\n##+ ", rest)[0].splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    return {row[0]: row[1:] for row in cells}


def test_a_rubric_can_do_what_the_page_says_and_no_more(seen: tuple[str, dict[str, str]]) -> None:
    isolation_class, facts = seen
    table = rows(WIRE, "What a rubric may do")
    column = table.pop("a rubric that").index(f"`{isolation_class}`")

    tries = {name: fact for name, fact in facts.items() if name in table}
    assert len(tries) == len(table) > 10
    assert tries == {name: cells[column] for name, cells in table.items()}


def test_a_rubric_finds_the_environment_and_the_directory_of_the_page(
    seen: tuple[str, dict[str, str]],
) -> None:
    isolation_class, facts = seen
    table = rows(WIRE, "What it finds")
    variables = {
        name.removeprefix("variable "): value for name, value in facts.items() if "variable " in name
    }

    directory = facts["directory"]
    said = dict(pair.split("=") for pair in re.findall(r"`([A-Z_]+=[^`]+)`", table["environment"][0]))
    assert variables == said | {"TMPDIR": directory}
    assert (directory == "/box/case") is (isolation_class == "namespace")
    assert "`/box/case` in class `namespace`" in table["working directory"][0]


def test_a_rubric_has_the_limit_of_cores_of_the_page(seen: tuple[str, dict[str, str]]) -> None:
    isolation_class, facts = seen
    said = rows(WIRE, "Limits")["core dumps"][0]

    assert said == "none: the limit is 0 bytes in class `subprocess` and 1 elsewhere"
    assert facts["core"] == ("0" if isolation_class == "subprocess" else "1")


# Agents.

VARIABLES = {
    "LANG": "C.UTF-8",
    "LC_TIME": "C",
    "LANGUAGE": "en",
    "TZ": "UTC",
    "MY_MODEL": "given-by-name",
    "OTHER": "no",
}


def test_an_agent_has_the_variables_of_the_page_and_no_others(tmp_path: Path) -> None:
    write_bench(tmp_path / "bench")
    agent = "import os\n\n\ndef solve(case):\n    print(*sorted(os.environ), flush=True)\n    return {}\n"
    (tmp_path / "agent.py").write_text(agent, encoding="utf-8")
    # The user of root's boxes has to see the agent.
    tmp_path.chmod(0o755)
    run = user_argv("run", TASK_CLASS, "--sut", "python:agent:solve", "--sut-env", "MY_MODEL", "--quiet")
    ran = call(run, tmp_path, environment(**VARIABLES))
    shown = call(eval_argv("show", "latest", "one", "--log", "--json"), tmp_path)
    assert (ran.returncode, shown.returncode) == (0, 0)
    table = rows(PYTHON, "What an agent finds")
    said = {name for cell in table for name in re.findall(r"`([A-Z][A-Z_]*)`", cell)}

    found = json.loads(shown.stdout)["text"][-1].split()
    assert {"PATH", "LANG", "LANGUAGE", "LC_", "HOME", "TMPDIR"} < said
    # Only in the other class of a box.
    said.remove("GIT_CONFIG_NOSYSTEM")
    assert {re.sub(r"^LC_.*", "LC_", name) for name in found} == said | {"MY_MODEL"}
