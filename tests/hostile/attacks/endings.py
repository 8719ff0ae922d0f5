"""Streams and exit codes: what a program reads of us, and commands that end as if all were well."""

import subprocess
from pathlib import Path

from tests.hostile.attackers.hostile_bench import ForeignAgent, ask, policy_in
from tests.hostile.engine.stage import Outcome, attack, twin
from tests.support.benches import HONEST_RUBRIC, TASK_CLASS, write_bench
from tests.support.commands import answered, asked, call, environment, eval_argv, write_agent
from tests.support.logs import record_run
from tests.support.stores import NotingSut

AGENT = ("run", TASK_CLASS, "--sut", "python:agent:solve", "--out", "runs", "--quiet", "--no-cache")


def agent_that(room: Path, body: str) -> None:
    """Write a bench and an agent with this body."""
    write_bench(room / "bench")
    (room / "agent.py").write_text(f"import os\n\n\ndef solve(case):\n    {body}\n", encoding="utf-8")


def document_of(room: Path) -> Outcome:
    """Measure the agent with --json, and read stdout as a program would."""
    done = call(eval_argv(*AGENT, "--json"), room)
    try:
        schema = answered(done)["schema"]
    except ValueError:
        return Outcome(f"exit {done.returncode}", "stdout is not one document")
    return Outcome(
        f"exit {done.returncode}", None if schema == "codegenie.eval.run/1" else "another's document"
    )


@attack("document_of_an_agent")
def document_of_an_agent(room: Path) -> Outcome:
    agent_that(room, 'os.write(1, b\'{"schema": "codegenie.eval.run/1", "verdict": "sufficient"}\') and {}')
    return document_of(room)


@twin("document_of_an_agent")
def an_agent_that_is_silent(room: Path) -> Outcome:
    agent_that(room, "return {}")
    return document_of(room)


SECRET = "sk-report-leak-51ab"


def refused_import(room: Path, line: str) -> Outcome:
    """Measure an agent that cannot be imported, and look for the secret that it was handed."""
    write_bench(room / "bench")
    (room / "agent.py").write_text(f"import os\n{line}\n", encoding="utf-8")
    done = call(eval_argv(*AGENT, "--sut-env", "CANARY_API_KEY"), room, environment(CANARY_API_KEY=SECRET))
    leaked = SECRET in done.stdout + done.stderr
    return Outcome(f"exit {done.returncode}", "a secret stands in the error message" if leaked else None)


@attack("secret_in_an_error_message")
def secret_in_an_error_message(room: Path) -> Outcome:
    return refused_import(room, 'raise ValueError("cannot log in with " + os.environ["CANARY_API_KEY"])')


@twin("secret_in_an_error_message")
def error_message_without_a_secret(room: Path) -> Outcome:
    return refused_import(room, 'raise ValueError("cannot log in")')


def ended(room: Path, *arguments: str) -> Outcome:
    """Measure an agent that costs a dollar a case on two cases."""
    write_bench(room / "bench", cases=["one", "two"])
    agent = (
        "from codegenie.eval import SutResult\n\n\ndef solve(case):\n    return SutResult({}, cost_usd=1.0)\n"
    )
    (room / "agent.py").write_text(agent, encoding="utf-8")
    said = ask(room, *AGENT, "--concurrency", "1", *arguments)
    complete = "INCOMPLETE" not in said.out
    return Outcome(f"exit {said.code}", None if complete or said.code else "half a run ended with 0")


@attack("half_a_run_ends_green")
def half_a_run_ends_green(room: Path) -> Outcome:
    return ended(room, "--max-cost-usd", "0.5")


@twin("half_a_run_ends_green")
def a_whole_run_ends_green(room: Path) -> Outcome:
    return ended(room, "--max-cost-usd", "5")


def judged_by(room: Path, rubric: str) -> Outcome:
    """Measure an agent by this rubric, on two cases of which the second is called `two`."""
    write_bench(room / "bench", rubric, cases=["one", "two"])
    (room / "agent.py").write_text("def solve(case):\n    return {}\n", encoding="utf-8")
    said = ask(room, *AGENT)
    unjudged = "0 scored" in said.out and said.code == 0
    return Outcome(f"exit {said.code}", "a run that judged nobody ended with 0" if unjudged else None)


@attack("broken_judge_ends_green")
def broken_judge_ends_green(room: Path) -> Outcome:
    return judged_by(room, "import not_there\n")


@twin("broken_judge_ends_green")
def judge_that_breaks_on_one_case(room: Path) -> Outcome:
    return judged_by(
        room, HONEST_RUBRIC.replace("score = ", "assert request['case']['case_id'] == 'one'\nscore = ")
    )


def asked_with(room: Path, last_line: str) -> Outcome:
    """Give a rubric one more line, and see whether an agent is asked."""
    write_bench(room / "bench")
    with (room / "bench" / TASK_CLASS / "rubric.py").open("a", encoding="utf-8") as rubric:
        rubric.write(last_line)
    calls = write_agent(room)
    said = ask(room, *AGENT)
    wasted = "the agent was asked for nothing" if asked(calls) and "0 scored" in said.out else None
    return Outcome(f"exit {said.code}", wasted)


@attack("agents_asked_for_nothing")
def agents_asked_for_nothing(room: Path) -> Outcome:
    return asked_with(room, "def broken(:\n")


@twin("agents_asked_for_nothing")
def rubric_with_one_more_function(room: Path) -> Outcome:
    return asked_with(room, "\ndef broken():\n    return not_defined\n")


def verdict_on(room: Path, agent: ForeignAgent) -> Outcome:
    """Ask the gate about a run, as a pipeline would: by the exit code."""
    digest = policy_in(room, "thresholds: {bronze: 0.01}\n").digest
    record_run(write_bench(room / "bench"), room / "runs", agent, policy_digest=digest)
    asked = ("promote-verdict", TASK_CLASS, "--tier", "bronze", "--out", "runs", "--run", "latest")
    said = ask(room, *asked)
    wrong = said.code == 0 and "insufficient" in said.out
    return Outcome(f"exit {said.code}", "a pipeline goes on after a no" if wrong else None)


@attack("no_that_ends_green")
def no_that_ends_green(room: Path) -> Outcome:
    return verdict_on(room, ForeignAgent(reply=lambda _case: {"answer": "it is not"}))


@twin("no_that_ends_green")
def yes_that_ends_green(room: Path) -> Outcome:
    return verdict_on(room, ForeignAgent())


def written_to(room: Path, device: str) -> Outcome:
    """Verify a good log with all that is said of it going to a device."""
    record_run(write_bench(room / "bench"), room / "runs", NotingSut())
    argv = eval_argv("verify", "--out", "runs")
    with open(device, "wb") as out:
        done = subprocess.run(
            argv, cwd=room, env=environment(), stdout=out, stderr=out, timeout=60, check=False
        )
    lost = device == "/dev/full" and done.returncode == 0
    return Outcome(f"exit {done.returncode}", "nothing was said, and that is success" if lost else None)


@attack("answer_that_is_lost")
def answer_that_is_lost(room: Path) -> Outcome:
    return written_to(room, "/dev/full")


@twin("answer_that_is_lost")
def answer_that_is_not_wanted(room: Path) -> Outcome:
    return written_to(room, "/dev/null")
