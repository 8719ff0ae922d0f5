"""An agent that is a program, measured by the real command line: its box, its output, its faults."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.agent_desk import FIXING, RIGHT, AgentDesk, agent_desk
from tests.support.benches import TASK_CLASS
from tests.support.commands import call, environment, eval_argv
from tests.support.sampling import one_worker, sampled

pytestmark = one_worker(__name__)


@pytest.fixture(scope="module")
def desk() -> Iterator[AgentDesk]:
    with agent_desk() as made:
        yield made


@pytest.fixture(scope="module")
def fixed(desk: AgentDesk) -> AgentDesk:
    """Return the desk after a run of an agent that mends every case and also leaves other things."""
    spec = desk.script(
        f"echo working; echo careful >&2; ln -s /etc/passwd link; rm TASK.md\n{FIXING}", "fix.sh"
    )
    done = desk.run(spec)
    assert done.returncode == 0, done.stderr
    return desk


def test_a_shell_script_that_mends_the_files_passes_in_a_box(fixed: AgentDesk) -> None:
    report = fixed.document("show", "latest")["report"]

    assert (report["passed_count"], report["sut_boundary"], report["sut_network"]) == (2, "namespace", "none")
    assert report["sut"]["spec"] == "command:./fix.sh"


def test_the_output_is_what_the_harness_collected(fixed: AgentDesk) -> None:
    (trial,) = fixed.trials("one")
    output = fixed.output(trial)

    assert output["files"] == {"calc.py": RIGHT, "TASK.md": None}
    assert output["other"] == {"link": {"kind": "symlink", "target": "/etc/passwd"}}
    assert (output["exit_code"], output["stdout_tail"]) == (0, "working\n")
    assert "+    return a + b\n" in output["diff"]
    assert fixed.artifact(trial, "patch").decode() == output["diff"]


def test_the_change_and_both_streams_are_shown(fixed: AgentDesk) -> None:
    assert "+    return a + b" in fixed.ask("show", "latest", "one", "--diff").stdout
    log = fixed.ask("show", "latest", "one", "--log").stdout
    assert "working" in log
    assert "careful" in log


def test_the_outputs_are_judged_again_with_the_same_result(fixed: AgentDesk) -> None:
    verified = fixed.document("verify", "--rescore")

    assert verified["ok"] is True


@pytest.mark.parametrize("isolation", ["landlock", "subprocess"])
def test_the_same_agent_runs_in_another_class(desk: AgentDesk, isolation: str) -> None:
    spec = desk.script(FIXING, f"{isolation}.sh")
    done = desk.run(spec, "--sut-isolation", isolation, "--json")

    report = json.loads(done.stdout)["report"]
    boundary = "process" if isolation == "subprocess" else isolation
    assert (report["passed_count"], report["sut_boundary"]) == (2, boundary)


FAULTS = {
    "it exits with another code": ("echo bad news >&2; exit 7\n", "sut.exception", "exit:7: bad news"),
    "it ends by a signal": ("kill -9 $$\n", "sut.exception", "signal:KILL"),
    "it prints nonsense and fails": ("printf '\\377\\376\\033[2J'; exit 1\n", "sut.exception", "exit:1: "),
    "it hangs": ("echo half > half.txt; sleep 600\n", "sut.timeout", "no end within 1 s"),
    "it hangs and ignores the request to end": (
        "trap '' TERM; while :; do sleep 1; done\n",
        "sut.timeout",
        "",
    ),
}


@pytest.mark.parametrize("what", FAULTS)
def test_an_agent_that_fails_is_a_typed_fault_of_its_case(desk: AgentDesk, what: str) -> None:
    script, code, detail = FAULTS[what]
    number = list(FAULTS).index(what)
    spec = desk.script(script, f"fault-{number}.sh")
    (desk.directory / f"fault-{number}.toml").write_text(
        f'schema = 1\nname = "fault"\ncommand = ["./fault-{number}.sh"]\n[limits]\ngrace_seconds = 0.2\n'
    )
    done = desk.run(f"fault-{number}.toml", "--cases", "one", "--timeout", "1", "--json")

    assert spec
    assert done.returncode == 0, done.stdout
    ((_, score),) = json.loads(done.stdout)["report"]["per_case"]
    (mode,) = score["failure_modes"]
    assert mode["code"] == code
    assert mode["detail"].startswith(detail)
    assert mode["detail"].isprintable()


def test_what_a_late_agent_had_done_is_kept_and_scores_nothing(desk: AgentDesk) -> None:
    spec = desk.script(f"{FIXING} echo so far; sleep 600\n", "late.sh")
    desk.run(spec, "--cases", "one", "--timeout", "2")
    (trial,) = desk.trials("one")

    assert trial["answer"]["score"] == 0.0
    assert b"+    return a + b" in desk.artifact(trial, "patch")
    assert desk.artifact(trial, "sut_stdout") == b"so far\n"


def test_processes_that_an_agent_leaves_are_ended_and_counted(desk: AgentDesk) -> None:
    spec = desk.script(f"{FIXING} setsid sleep 987654 & sleep 987654 &\n", "leaving.sh")
    done = desk.run(spec, "--cases", "one", "--json")

    assert json.loads(done.stdout)["report"]["passed_count"] == 1
    (trial,) = desk.trials("one")
    assert trial["attempts"][0]["left"] == 2
    assert not [True for path in Path("/proc").glob("[0-9]*/cmdline") if b"987654" in _read(path)]


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_a_flood_on_its_streams_is_cut_in_the_middle(desk: AgentDesk) -> None:
    spec = desk.script("echo begin; head -c 50000000 /dev/zero | tr '\\0' 'x'; echo; echo end\n", "flood.sh")
    done = desk.run(spec, "--cases", "one")
    (trial,) = desk.trials("one")
    kept = desk.artifact(trial, "sut_stdout")

    assert done.returncode == 0, done.stderr
    assert kept.startswith(b"begin\n")
    assert kept.endswith(b"\nend\n")
    assert b"bytes are left out]" in kept
    assert len(kept) < 6_000_000


REFUSALS = {
    "it is not installed": ("command:no-such-agent", "agent not found: no-such-agent"),
    "it may not be executed": ("command:./plain.txt", "is not a program"),
    "it is not a script": ("command:./noise", "neither a program nor a script"),
    "its argument is a file that the box does not show": (
        "command:sh ./plain.txt",
        "which the box does not show",
    ),
    "its name adds a line to the report": ("command:'./a\npassed 9 of 9'", "cannot be shown"),
    "its name steers a terminal": ("command:'./a\x1b[2J'", "cannot be shown"),
    "it is empty": ("command: ", "the command is empty"),
    "the file is not there": ("no.toml", "there is no such file"),
    "the file has an unknown key": ("odd.toml", "this key is not known"),
    "the preset is not known": ("preset:gpt", "is not a preset"),
    "the preset has no model": ("preset:claude-code", "needs a model"),
}


@pytest.mark.parametrize("what", REFUSALS)
def test_an_agent_that_cannot_be_had_is_refused_before_the_first_case(desk: AgentDesk, what: str) -> None:
    spec, problem = REFUSALS[what]
    (desk.directory / "plain.txt").write_text("text\n")
    (desk.directory / "noise").write_bytes(b"\x00\x01\x02")
    (desk.directory / "noise").chmod(0o755)
    (desk.directory / "odd.toml").write_text('schema = 1\nname = "x"\ncommand = ["sh"]\ncolour = "red"\n')
    before = sorted(path.name for path in (desk.directory / ".codegenie/eval/runs").glob("*.json"))
    done = desk.run(spec, ANTHROPIC_API_KEY="k" * 20)

    assert done.returncode == 2, done.stderr
    assert problem in done.stderr
    assert "Traceback" not in done.stderr
    assert sorted(path.name for path in (desk.directory / ".codegenie/eval/runs").glob("*.json")) == before


def test_options_for_boxes_are_refused_for_other_agents(desk: AgentDesk) -> None:
    for option in (("--sut-model", "m"), ("--sut-network", "none")):
        done = desk.run("null", *option)
        assert (done.returncode, option[0] in done.stderr) == (2, True)


UPDATER = """\
import os, subprocess, sys, time
records = ".codegenie/eval/runs"
before = len(os.listdir(records)) if os.path.isdir(records) else 0
run = subprocess.Popen(sys.argv[1:], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
deadline = time.monotonic() + 120
while time.monotonic() < deadline and not (os.path.isdir(records) and len(os.listdir(records)) > before):
    time.sleep(0.02)
with open("changing.sh", "a") as file:
    file.write("# new\\n")
sys.stdout.write(run.communicate()[0])
sys.exit(run.returncode)
"""
"""Calls a command, and updates the agent as soon as the start of the run is recorded."""


def test_an_agent_that_is_changed_during_the_run_is_not_evidence(desk: AgentDesk) -> None:
    desk.script(f"{FIXING} sleep 1\n", "changing.sh")
    updater = desk.directory / "update.py"
    updater.write_text(UPDATER)
    argv = eval_argv("run", TASK_CLASS, "--sut", "command:./changing.sh", "--quiet", "--no-cache")
    done = call([sys.executable, str(updater), *argv], desk.directory, environment())

    assert done.returncode == 3, done.stdout
    assert "has changed since the run was started" in done.stdout


REPLACER = """\
import os, subprocess, sys, time
how, *command = sys.argv[1:]
records = ".codegenie/eval/runs"
before = len(os.listdir(records)) if os.path.isdir(records) else 0
run = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
deadline = time.monotonic() + 120
while time.monotonic() < deadline and not (os.path.isdir(records) and len(os.listdir(records)) > before):
    time.sleep(0.02)
os.rename("kit", "kit before")
if how == "another directory":
    os.mkdir("kit", 0o755)
if how == "a link to the bench":
    os.symlink(os.path.abspath("bench"), "kit")
os.remove("kit before/wait")
sys.stdout.write(run.communicate()[0])
sys.exit(run.returncode)
"""
"""Calls a command, and replaces the directory that its boxes show as soon as the start is recorded."""

REPLACED_BY = ("another directory", "a link to the bench", "nothing")


@pytest.mark.parametrize("what", sampled(REPLACED_BY, REPLACED_BY[0].__eq__))
def test_a_directory_that_is_replaced_during_the_run_ends_it_as_changed(what: str) -> None:
    with agent_desk() as desk:
        kit = desk.directory / "kit"
        kit.mkdir(mode=0o755)
        (kit / "wait").touch()
        # It ends only after the replacement. The run is recorded before the box is made, so the box may show
        # what came instead of the directory, and that has no such file.
        desk.script(f"while [ -e {kit}/wait ]; do sleep 0.02; done\n{FIXING}", "waits.sh")
        (desk.directory / "waits.toml").write_text(
            'schema = 1\nname = "waits"\ncommand = ["/agent/waits.sh"]\nfiles = ["waits.sh"]\n'
            f'readable = ["{kit}"]\n'
        )
        (desk.directory / "replace.py").write_text(REPLACER)
        argv = eval_argv("run", TASK_CLASS, "--sut", "waits.toml", "--quiet", "--no-cache")
        done = call([sys.executable, "replace.py", what, *argv], desk.directory, environment())

    assert done.returncode == 3, done.stdout
    assert f"{kit} is not the directory that it was" in done.stdout


def test_the_agent_sees_neither_the_bench_nor_the_log_nor_the_repository(desk: AgentDesk) -> None:
    (desk.directory / ".git").mkdir(exist_ok=True)
    thief = f"find / -name '{TASK_CLASS}*' 2>/dev/null; ls -A {desk.directory}\n"
    desk.run(desk.script(thief, "thief.sh"), "--cases", "one")
    (trial,) = desk.trials("one")

    assert desk.artifact(trial, "sut_stdout") == b"thief.sh\n"
