"""Agents in a process of their own that forge, flood, spy, stay, and become somebody else under way."""

import contextlib
import json
from pathlib import Path
from typing import Any

from codegenie.eval.models import BenchRunReport
from codegenie.eval.suts.python import PythonSut
from tests.hostile.attackers.hostile_bench import HONEST, HOSTILE, judged, run_cases, unless_the_run_ends
from tests.hostile.attackers.perfect_rubrics import daemon, still_beats
from tests.hostile.engine.stage import Outcome, attack, environment, files_that_hold, twin
from tests.support.benches import HONEST_RUBRIC, canonical_score
from tests.support.commands import asked, write_agent

MIB = 1 << 20

_AGENT = """\
import json, os, sys, time


def solve(case):
    right = {{"answer": f"it is {{case.case_id}}"}}
    if case.case_id == "honest":
        return right
{deed}
    return right
"""


def write_deed(room: Path, deed: str) -> None:
    """Write `agent.py`, which does this on the hostile case; what it returns in the end is right."""
    lines = "".join(f"    {line}\n" for line in deed.splitlines())
    (room / "agent.py").write_text(_AGENT.format(deed=lines), encoding="utf-8")


def measured(room: Path, deed: str, **options: Any) -> BenchRunReport:  # noqa: ANN401 - any of RunOptions
    """Measure such an agent in processes of its own."""
    write_deed(room, deed)
    with contextlib.chdir(room):
        return run_cases(room, HONEST_RUBRIC, (HONEST, HOSTILE), PythonSut("agent:solve"), **options)


def passed(room: Path, deed: str) -> Outcome:
    """Play a twin."""
    outcome = judged(measured(room, deed))
    return Outcome(outcome.met, None, outcome.sibling)


_FRAME = "frame = {'harness_output': right, 'cost_usd': 0, 'usage': None}\n"


@attack("result_of_a_dead_agent")
def result_of_a_dead_agent(room: Path) -> Outcome:
    return judged(measured(room, _FRAME + "os.write(3, json.dumps(frame).encode())\nos._exit(7)"))


@twin("result_of_a_dead_agent")
def result_of_a_child_that_died(room: Path) -> Outcome:
    return passed(room, "if os.fork() == 0:\n    os.close(3)\n    os._exit(7)\nos.wait()")


@attack("two_frames")
def two_frames(room: Path) -> Outcome:
    return judged(measured(room, _FRAME + "os.write(3, json.dumps(frame).encode())\nright = {'answer': '?'}"))


@twin("two_frames")
def frame_on_standard_output(room: Path) -> Outcome:
    return passed(room, _FRAME + "print(json.dumps({**frame, 'harness_output': {}}))")


@attack("half_a_character")
def half_a_character(room: Path) -> Outcome:
    forged = "frame['harness_output'] = {**right, 'note': '?'}\n"
    written = "os.write(3, json.dumps(frame).replace('?', chr(92) + 'ud800').encode())\nos._exit(0)"
    return unless_the_run_ends(lambda: judged(measured(room, _FRAME + forged + written)))


@twin("half_a_character")
def whole_character(room: Path) -> Outcome:
    return passed(room, "right['note'] = chr(0x1f600)")


@attack("log_flood")
def log_flood(room: Path) -> Outcome:
    flood = f"for _ in range(16):\n    os.write(1, b'x' * {MIB})\n    os.write(2, b'y' * {MIB})"
    outcome = judged(measured(room, flood), lambda _report: None)
    largest = max(file.stat().st_size for file in (room / "runs").rglob("*") if file.is_file())
    return Outcome(outcome.met, f"{largest} bytes of it are kept" if largest > MIB else None, outcome.sibling)


@twin("log_flood")
def log_of_some_lines(room: Path) -> Outcome:
    return passed(room, "print('thinking ...\\n' * 100)")


@attack("daemon_of_an_agent")
def daemon_of_an_agent(room: Path) -> Outcome:
    leave = "if os.fork() == 0:\n" + "".join(f"    {line}\n" for line in daemon(room / "beats").splitlines())
    outcome = judged(measured(room, leave + "time.sleep(0.1)"), lambda _report: None)
    return Outcome(outcome.met, still_beats(room / "beats"), outcome.sibling)


@twin("daemon_of_an_agent")
def child_of_an_agent(room: Path) -> Outcome:
    return passed(room, "if os.fork() == 0:\n    os._exit(0)\nos.wait()")


@attack("environment_spied_out")
def environment_spied_out(room: Path) -> Outcome:
    seen = room / "seen"
    with environment(SERVICE_TOKEN="sk-live-4f7a91c03be2d586", LANG_TOKEN="sk-lang", LCX_TOKEN="sk-lcx"):
        outcome = judged(
            measured(room, f"json.dump(dict(os.environ), open({str(seen)!r}, 'w'))"), lambda _report: None
        )
    names = [name for name in json.loads(seen.read_bytes()) if name.endswith("_TOKEN")]
    return Outcome(outcome.met, f"it was given {names}" if names else None, outcome.sibling)


@twin("environment_spied_out")
def environment_as_allowed(room: Path) -> Outcome:
    write_deed(room, "right = right if os.environ['SERVICE_TOKEN'] == 'for the agent' else {}")
    with contextlib.chdir(room), environment(SERVICE_TOKEN="for the agent"):
        agent = PythonSut("agent:solve", pass_names=["SERVICE_TOKEN"])
        outcome = judged(run_cases(room, HONEST_RUBRIC, (HONEST, HOSTILE), agent))
    return Outcome(outcome.met, None, outcome.sibling)


_TWO_RUNS = ("first", "second")


def _measured_twice(room: Path, change: str) -> Outcome:
    """Measure an agent twice with one store, its file changed in between; harm is a second run unasked."""
    calls = write_agent(room)
    reports = []
    for run in _TWO_RUNS:
        (room / run).mkdir()
        with contextlib.chdir(room):
            agent = PythonSut("agent:solve", version="1")
            reports.append(
                run_cases(room / run, HONEST_RUBRIC, (HONEST, HOSTILE), agent, cache_dir=room / "cache")
            )
        with (room / "agent.py").open("a", encoding="utf-8") as file:
            file.write(change)
    again = len(asked(calls)) == 4
    sibling = canonical_score(dict(reports[-1].per_case)[HONEST])
    return Outcome("asked again" if again else "reused", None, sibling)


@attack("another_agent_under_the_same_name")
def another_agent_under_the_same_name(room: Path) -> Outcome:
    outcome = _measured_twice(
        room, "\n\nnoting = solve\n\n\ndef solve(case):\n    noting(case)\n    return {}\n"
    )
    harm = None if outcome.met == "asked again" else "outputs of the old agent count for the new one"
    return Outcome(outcome.met, harm)


@twin("another_agent_under_the_same_name")
def the_same_agent_twice(room: Path) -> Outcome:
    return Outcome(_measured_twice(room, "").met)


@attack("thread_that_stays")
def thread_that_stays(room: Path) -> Outcome:
    came_to_its_end = room / "came-to-its-end"
    stay = (
        f"def work():\n    time.sleep(15)\n    open({str(came_to_its_end)!r}, 'w').close()\n"
        "import threading\nthreading.Thread(target=work).start()"
    )
    report = measured(room, stay)
    held = came_to_its_end.exists()
    return judged(report, lambda _report: "the thread held its slot" if held else None)


@twin("thread_that_stays")
def thread_that_ends(room: Path) -> Outcome:
    return passed(room, "import threading\nthreading.Thread(target=time.sleep, args=(0.05,)).start()")


def _logged(room: Path, text: str) -> Outcome:
    """Let an agent print what it was given by `--sut-env`, among other things."""
    write_deed(room, f"print({text!r}, os.environ['SERVICE_TOKEN'][:{len(text)}])")
    with contextlib.chdir(room), environment(SERVICE_TOKEN="sk-live-4f7a91c03be2d586"):
        agent = PythonSut("agent:solve", pass_names=["SERVICE_TOKEN"])
        outcome = judged(run_cases(room, HONEST_RUBRIC, (HONEST, HOSTILE), agent), lambda _report: None)
    kept = files_that_hold(b"sk-live-4f7a91c03be2d586", room / "runs")
    return Outcome(outcome.met, "its key is on the disk" if kept else None, outcome.sibling)


@attack("key_in_the_log")
def key_in_the_log(room: Path) -> Outcome:
    return _logged(room, "connecting with the key that I was given, which is")


@twin("key_in_the_log")
def beginning_of_a_key_in_the_log(room: Path) -> Outcome:
    return _logged(room, "key")
