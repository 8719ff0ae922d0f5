"""`python:module:attr` in a box, measured by the real command line: what it gets, returns, leaves and is."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.agent_desk import RIGHT, AgentDesk, agent_desk, edit_case, python_program
from tests.support.benches import TASK_CLASS, CaseFiles
from tests.support.commands import environment, user_argv
from tests.support.sampling import one_worker, sampled

pytestmark = one_worker(__name__)

TOKEN = "a-token-that-no-agent-may-see"
AGENT = f"""\
import json, os, signal, sys, time

from codegenie.eval import SutResult

RIGHT = {RIGHT!r}
HERE = os.path.dirname(os.path.abspath(__file__))


def solve(case):
    return globals()[case.case_id](case)


def returns(case):
    return {{"files": {{"calc.py": RIGHT}}}}


def edits(case):
    import helper

    helper.mend(case.input_dir)


def costs(case):
    return SutResult({{"files": {{"calc.py": RIGHT}}}}, cost_usd=0.25)


def raises(case):
    print("before")
    raise ValueError("no luck")


def hangs(case):
    open("half.txt", "w").write("half")
    sys.stdout.write("half a line")
    sys.stderr.write("careful")
    time.sleep(3600)


def killed(case):
    print("soon")
    os.kill(os.getpid(), signal.SIGKILL)


def leaves(case):
    if os.fork() == 0:
        os.setsid()
        time.sleep(3600)
    return {{"files": {{"calc.py": RIGHT}}}}


def looks(case):
    facts = {{"case": [case.case_id, case.task_class, case.input_dir, case.trial], "cwd": os.getcwd()}}
    facts["environment"] = dict(os.environ)
    facts["files"] = sorted(os.listdir("."))
    facts["path"] = sys.path[0]
    try:
        open(os.path.join(HERE, "mark"), "w")
    except OSError as error:
        facts["write"] = error.strerror
    return {{"files": {{"calc.py": RIGHT}}, "facts": facts}}


def thief(case):
    found = []
    for folder, _, names in os.walk(HERE):
        for name in names:
            try:
                with open(os.path.join(folder, name), "rb") as file:
                    found += [os.path.join(folder, name)] * (b"{TOKEN}" in file.read())
            except OSError:
                pass
    print(json.dumps(sorted(os.path.relpath(path, HERE) for path in found)))
    return {{"files": {{"calc.py": RIGHT}}}}
"""
HELPER = """\
import os


def mend(directory):
    path = os.path.join(directory, "calc.py")
    with open(path) as file:
        text = file.read()
    with open(path, "w") as file:
        file.write(text.replace("a - b", "a + b"))
"""
PASSING = ("costs", "edits", "leaves", "looks", "returns", "thief")
DEEDS = (*PASSING, "hangs", "killed", "raises")


def case_of(deed: str) -> CaseFiles:
    case = edit_case(deed, **({"sut_wall_clock_seconds": 3} if deed == "hangs" else {}))
    return CaseFiles(deed, {**case.files, "expected/token.txt": TOKEN}, case.fields)


def furnish(desk: AgentDesk) -> None:
    """Write the agent, and hide the token in what a box must not show."""
    (desk.directory / "agent.py").write_text(AGENT.replace(TOKEN, TOKEN[:5] + '" + b"' + TOKEN[5:]))
    (desk.directory / "helper.py").write_text(HELPER)
    for name in (".git/config", ".codegenie/old/answer.txt", "trust-tiers.yaml"):
        path = desk.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"# {TOKEN}\nthresholds: {{bronze: 0.5}}\n")


@pytest.fixture(scope="module")
def desk() -> Iterator[AgentDesk]:
    """Give the directory after one run of all deeds in the default way."""
    with agent_desk(case_of(deed) for deed in DEEDS) as made:
        furnish(made)
        done = made.run("python:agent:solve")
        assert done.returncode == 0, done.stderr
        (made.directory / "report.txt").write_text(done.stdout)
        (made.directory / "run.txt").write_text(made.document("show", "latest")["report"]["run_id"])
        yield made


def trial_of(desk: AgentDesk, deed: str) -> dict[str, Any]:
    (trial,) = desk.trials(deed, (desk.directory / "run.txt").read_text())
    return trial


def fault_of(trial: dict[str, Any]) -> tuple[str, str]:
    (mode,) = trial["answer"]["failure_modes"]
    return mode["code"], mode["detail"]


def test_the_default_is_a_box_without_a_network_and_its_proof_is_recorded(desk: AgentDesk) -> None:
    run = (desk.directory / "run.txt").read_text()
    report = desk.document("show", run)["report"]
    starts = [json.loads(path.read_text()) for path in sorted(desk.directory.glob(".codegenie/eval/runs/0*"))]
    (start,) = [each["body"] for each in starts if each["run_id"] == run and each["kind"] == "run.started"]

    assert (report["sut_boundary"], report["sut_network"]) == ("namespace", "none")
    assert start["sut_isolation"]["isolation_class"] == "namespace"
    assert "SUT namespace, network none" in (desk.directory / "report.txt").read_text()
    assert desk.document("verify")["ok"] is True


@pytest.mark.parametrize("deed", PASSING)
def test_what_is_returned_and_what_is_changed_pass(desk: AgentDesk, deed: str) -> None:
    assert trial_of(desk, deed)["answer"]["passed"] is True


def test_an_agent_that_returns_nothing_is_judged_by_what_it_changed(desk: AgentDesk) -> None:
    trial = trial_of(desk, "edits")
    output = desk.output(trial)

    assert (output["files"], output["exit_code"], output["stdout_tail"]) == ({"calc.py": RIGHT}, 0, "")
    assert desk.artifact(trial, "patch").decode() == output["diff"]


def test_a_stated_cost_is_the_word_of_the_agent(desk: AgentDesk) -> None:
    trial = trial_of(desk, "costs")

    assert (trial["cost_usd"], trial["cost_source"], trial["attempts"][0]["cost_usd"]) == (
        0.25,
        "agent",
        0.25,
    )


def test_processes_that_it_leaves_are_ended_and_counted(desk: AgentDesk) -> None:
    assert trial_of(desk, "leaves")["attempts"][0]["left"] == 1


def test_an_exception_is_told_by_type_message_file_and_line(desk: AgentDesk) -> None:
    trial = trial_of(desk, "raises")
    line = AGENT.splitlines().index('    raise ValueError("no luck")') + 1

    assert fault_of(trial) == ("sut.exception", f"ValueError: no luck (agent.py:{line})")
    assert desk.artifact(trial, "sut_stdout") == b"before\n"
    assert b"Traceback" in desk.artifact(trial, "sut_stderr")


def test_what_a_hanging_agent_printed_and_wrote_is_kept(desk: AgentDesk) -> None:
    trial = trial_of(desk, "hangs")

    assert fault_of(trial) == ("sut.timeout", "no result within 3 s")
    assert desk.artifact(trial, "sut_stdout") == b"half a line"
    assert desk.artifact(trial, "sut_stderr") == b"careful"
    assert b"+half" in desk.artifact(trial, "patch")


def test_an_agent_that_is_killed_is_a_fault_of_its_case_with_its_last_line(desk: AgentDesk) -> None:
    trial = trial_of(desk, "killed")

    assert fault_of(trial) == ("sut.exception", "signal:KILL: soon")


def test_it_works_in_the_copy_of_the_case_and_can_write_nowhere_else(desk: AgentDesk) -> None:
    facts = desk.output(trial_of(desk, "looks"))["facts"]
    variables = facts["environment"]

    assert facts["case"] == ["looks", TASK_CLASS, "/workspace", 0]
    assert (facts["cwd"], facts["files"]) == ("/workspace", ["TASK.md", "calc.py", "question.txt"])
    assert facts["path"] == os.path.realpath(desk.directory)
    assert facts["write"] == "Read-only file system"
    assert (variables["HOME"], variables["CODEGENIE_CASE_ID"]) == ("/home/agent", "looks")
    assert "PYTHONPATH" not in variables


def test_a_thief_in_the_directory_of_the_bench_finds_nothing(desk: AgentDesk) -> None:
    assert json.loads(desk.artifact(trial_of(desk, "thief"), "sut_stdout")) == []


def test_the_same_thief_finds_everything_without_a_box(desk: AgentDesk) -> None:
    """The control: it only reads, and only in the directory of this test."""
    done = desk.run("python:agent:solve", "--cases", "thief", "--sut-isolation", "subprocess", "--json")
    (trial,) = desk.trials("thief")
    found = json.loads(desk.artifact(trial, "sut_log"))

    assert json.loads(done.stdout)["report"]["sut_boundary"] == "process"
    assert {f"bench/{TASK_CLASS}/cases/thief/expected/token.txt", ".git/config", "trust-tiers.yaml"} < {
        *found
    }
    assert ".codegenie/old/answer.txt" in found


def test_in_landlock_it_works_and_the_thief_finds_nothing(desk: AgentDesk) -> None:
    chosen = ("--cases", "thief", "--cases", "edits", "--cases", "raises")
    landlock = ("--sut-isolation", "landlock", "--sut-python", python_program())
    done = desk.run("python:agent:solve", *chosen, *landlock, "--json")
    document = json.loads(done.stdout)
    (thief,), (raised,) = desk.trials("thief"), desk.trials("raises")

    assert (document["report"]["sut_boundary"], document["report"]["passed_count"]) == ("landlock", 2)
    assert json.loads(desk.artifact(thief, "sut_stdout")) == []
    assert fault_of(raised)[1].startswith("ValueError: no luck (agent.py:")


IDENTITY = {
    "a comment in a helper": ("helper.py", HELPER + "# new\n", (True, False)),
    "other code in a helper": ("helper.py", HELPER.replace('"a - b"', '"a-b"'), (True, True)),
    "a file of data": ("data.json", "{}", (False, False)),
    "a module that it does not import": ("unused.py", "x = 1\n", (False, False)),
}


def identity(desk: AgentDesk, *flags: str) -> dict[str, Any]:
    done = desk.run("python:agent:solve", "--cases", "returns", "--json", *flags)
    found: dict[str, Any] = json.loads(done.stdout)["report"]["sut"]
    return found


@pytest.fixture
def copy(desk: AgentDesk) -> Iterator[AgentDesk]:
    """Give a directory of its own with the same bench and agent, in which nothing was measured."""
    with agent_desk() as made:
        shutil.rmtree(made.directory / "bench")
        shutil.copytree(desk.directory / "bench", made.directory / "bench")
        for name in ("agent.py", "helper.py"):
            shutil.copy(desk.directory / name, made.directory / name)
        yield made


@pytest.mark.parametrize("what", sampled(IDENTITY, lambda name: "helper" in name))
def test_an_agent_is_all_of_its_modules_and_no_data(copy: AgentDesk, what: str) -> None:
    name, text, (other_bytes, other_code) = IDENTITY[what]
    before = identity(copy)
    (copy.directory / name).write_text(text)
    after = identity(copy)

    assert (before["digest"] != after["digest"], before["syntax"] != after["syntax"]) == (
        other_bytes,
        other_code,
    )


def test_packages_and_interpreter_are_part_of_the_agent(copy: AgentDesk) -> None:
    venv = copy.directory / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True, timeout=120)
    python = str(venv / "bin" / "python")
    (packages,) = venv.glob("lib/python*/site-packages")
    bare = identity(copy, "--sut-python", python)
    (packages / "bought-1.0.dist-info").mkdir()
    (packages / "bought-1.0.dist-info" / "METADATA").write_text("Name: bought\nVersion: 1.0\n")
    bought = identity(copy, "--sut-python", python)
    own = identity(copy)
    plain = identity(copy, "--sut-python", python, "--sut-isolation", "subprocess")

    assert plain == bought
    # No package of the harness is there: the agent runs on the standard library alone.
    assert bare["spec"] == f"python:agent:solve --sut-python {python}"
    assert len({bare["digest"], bought["digest"], own["digest"]}) == 3
    assert bare["syntax"] == bought["syntax"] == own["syntax"]


# The first call ends when the helper was changed, so the second one meets the change.
PATIENT = """\
import os, time
import helper


def solve(case):
    while "# new" not in open(helper.__file__).read():
        time.sleep(0.01)
    return {}
"""


def test_a_helper_that_is_changed_during_the_run_ends_it(copy: AgentDesk) -> None:
    (copy.directory / "agent.py").write_text(PATIENT)
    argv = user_argv("run", TASK_CLASS, "--sut", "python:agent:solve", "-q", "--concurrency", "1")
    run = subprocess.Popen(
        [*argv, "--cases", "returns", "--cases", "edits"],
        cwd=copy.directory,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    records = copy.directory / ".codegenie/eval/runs"
    while run.poll() is None and not list(records.glob("0*.json")):
        time.sleep(0.02)
    # As another program of the user would: the agent itself cannot write there.
    with (copy.directory / "helper.py").open("a") as file:
        file.write("# new\n")
    said, _ = run.communicate(timeout=120)

    assert run.returncode == 3, said
    assert "python:agent:solve has changed since the run was started" in said
    assert "helper.py" in said


def test_a_module_that_could_not_be_found_before_ends_the_run_with_a_hint(copy: AgentDesk) -> None:
    (copy.directory / "agent.py").write_text(
        "def solve(case):\n    __import__('hel' + 'per')\n    return {}\n", encoding="utf-8"
    )
    done = copy.run("python:agent:solve", "--cases", "returns")

    assert done.returncode == 3, done.stdout
    assert "loaded a module that was not found before the run was started" in done.stderr
    assert "import it by its name" in done.stderr


def test_a_second_run_of_the_same_agent_has_the_same_identity_wherever_it_lies(
    desk: AgentDesk, copy: AgentDesk
) -> None:
    before = desk.document("show", (desk.directory / "run.txt").read_text())["report"]["sut"]

    assert identity(copy) == before


def test_a_verdict_is_refused_when_a_helper_is_another_one_by_then() -> None:
    with agent_desk(("one",)) as made:
        furnish(made)
        (made.directory / "agent.py").write_text(
            "import helper\n\n\ndef solve(case):\n    helper.mend(case.input_dir)\n"
        )
        assert made.run("python:agent:solve").returncode == 0
        asked = ("promote-verdict", TASK_CLASS, "--tier", "bronze")
        judged = made.ask(*asked)
        (made.directory / "helper.py").write_text(HELPER + "# new\n")
        refused = made.ask(*asked)

    assert judged.stdout.startswith("bronze "), judged.stderr
    assert (refused.returncode, "is not the agent that run" in refused.stderr) == (4, True), refused.stdout


NOT_PYTHON = {
    "it says nothing": ("exit 0\n", "is not a Python that can be used: it said nothing"),
    "it says what is wrong": ("echo it is broken >&2\n", "it said it is broken"),
    "it is too old": (
        """echo '{"version": [3, 8, 1], "line": "cpython 3.8.1", "packages": []}'\n""",
        "is cpython 3.8.1, which is too old",
    ),
}


@pytest.mark.parametrize("what", sampled(NOT_PYTHON, lambda name: "old" in name))
def test_an_interpreter_that_cannot_run_agents_is_refused_with_what_it_said(
    copy: AgentDesk, what: str
) -> None:
    script, said = NOT_PYTHON[what]
    copy.script(script, "python")
    done = copy.run("python:agent:solve", "--sut-python", "./python")

    assert (done.returncode, said in done.stderr) == (2, True), done.stderr
    assert "name a Python of version 3.11 or later" in done.stderr


def test_an_agent_that_cannot_be_imported_in_the_box_says_why(copy: AgentDesk) -> None:
    (copy.directory / "agent.py").write_text("\nimport not_there\n")
    done = copy.run("python:agent:solve")

    assert done.returncode == 2
    assert "ModuleNotFoundError: No module named 'not_there' (agent.py:2)" in done.stderr
