"""Texts that have two readings, and texts and streams that stop a command."""

import json
import subprocess
import zipfile
from pathlib import Path
from typing import Any

from codegenie.eval.gate.deciding import load_policy
from codegenie.eval.ports import SutCase
from tests.hostile.attackers.command_line import RUNS, ask
from tests.hostile.attackers.hostile_bench import refused, rubric_that_prints, run_hostile
from tests.hostile.engine.stage import Outcome, attack, twin
from tests.support.benches import TASK_CLASS, right_answer, write_bench
from tests.support.commands import environment, eval_argv
from tests.support.logs import forge


def verify_after_a_run(room: Path, *filters: str) -> Outcome:
    write_bench(room / "bench", cases=("one", "two"))
    ask(room, "run", TASK_CLASS, "--sut", "null", "-q", *filters)
    exit_code, _ = ask(room, "verify")
    return Outcome(f"verify {exit_code}", None if exit_code == "exit 0" else "the shared log is refused")


@attack("filter_that_selects_everything")
def filter_that_selects_everything(room: Path) -> Outcome:
    return verify_after_a_run(room, "--cases", "*")


@twin("filter_that_selects_everything")
def no_filter(room: Path) -> Outcome:
    return verify_after_a_run(room)


def verify_bundle(room: Path, name: str) -> Outcome:
    write_bench(room / "bench", cases=("one", "two"))
    _, ran = ask(room, "run", TASK_CLASS, "--sut", "null", "-q")
    ask(room, "export", ran["report"]["run_id"], "-o", "honest.zip")
    with zipfile.ZipFile(room / "honest.zip") as honest, zipfile.ZipFile(room / "sent.zip", "w") as sent:
        for member in honest.namelist():
            sent.writestr(name if member == "HEAD" else member, honest.read(member))
    # zipfile cuts a name at its zero byte when it writes as well, so the byte is put in afterwards.
    raw = (room / "sent.zip").read_bytes().replace(b"HEAD_", b"HEAD\0")
    (room / "sent.zip").write_bytes(raw)
    met, _ = ask(room, "verify", "--out", "sent.zip")
    return Outcome(met, "a name that was never checked was unpacked" if met == "exit 0" else None)


@attack("bundle_member_with_two_names")
def bundle_member_with_two_names(room: Path) -> Outcome:
    return verify_bundle(room, "HEAD_/../../planted")


@twin("bundle_member_with_two_names")
def honest_bundle(room: Path) -> Outcome:
    return Outcome(verify_bundle(room, "HEAD").met)


def report_of(room: Path, detail: str, **variables: str) -> Outcome:
    modes = [{"code": "answer.wrong", "detail": detail}]
    answer = {"passed": False, "score": 0.0, "breakdown": {}, "failure_modes": modes}
    write_bench(room / "bench", rubric_that_prints(json.dumps(answer)), ("hostile",))
    done = subprocess.run(
        eval_argv("run", TASK_CLASS, "--sut", "null", "-q"),
        cwd=room,
        env=environment(PYTHONUTF8="0", **variables),
        capture_output=True,
        check=False,
        timeout=60,
    )
    got = None if b"log head" in done.stdout else "a text of the rubric took the report away"
    return Outcome(f"exit {done.returncode}", got)


@attack("detail_outside_the_charset")
def detail_outside_the_charset(room: Path) -> Outcome:
    return report_of(room, "\x1b[31m", PYTHONIOENCODING="latin-1:strict")


@twin("detail_outside_the_charset")
def detail_inside_the_charset(room: Path) -> Outcome:
    return report_of(room, "plain", PYTHONIOENCODING="latin-1:strict")


def run_with_stderr(room: Path, redirection: str) -> Outcome:
    write_bench(room / "bench", cases=("one",))
    argv = eval_argv("run", TASK_CLASS, "--sut", "null")
    shell = ["sh", "-c", f'exec "$@" {redirection}', "sh", *argv]
    done = subprocess.run(shell, cwd=room, env=environment(), stdout=subprocess.PIPE, check=False, timeout=60)
    return Outcome(f"exit {done.returncode}", None if b"log head" in done.stdout else "nothing was measured")


@attack("closed_stderr")
def closed_stderr(room: Path) -> Outcome:
    return run_with_stderr(room, "2>&-")


@twin("closed_stderr")
def stderr_to_nowhere(room: Path) -> Outcome:
    return run_with_stderr(room, "2>/dev/null")


def run_with_settings(room: Path, text: str) -> Outcome:
    write_bench(room / "bench", cases=("one",))
    (room / "pyproject.toml").write_text(f"[tool.codegenie.eval]\n{text}\n", encoding="utf-8")
    met, document = ask(room, "run", TASK_CLASS, "--sut", "null", "-q")
    said = document.get("error", {}).get("message", "")
    return Outcome(met, "it is called a bug of the harness" if "internal error" in said else None)


@attack("zero_byte_in_settings")
def zero_byte_in_settings(room: Path) -> Outcome:
    return run_with_settings(room, r'out = "a\u0000b"')


@twin("zero_byte_in_settings")
def a_directory_in_settings(room: Path) -> Outcome:
    return run_with_settings(room, 'out = "a-b"')


def raised(room: Path, error: BaseException) -> Outcome:
    async def agent(case: SutCase) -> dict[str, Any]:
        if case.case_id == "hostile":
            raise error
        return await right_answer(case)

    report = run_hostile(room, rubric_that_prints("{}"), agent, timeout_seconds=3.0)
    (mode,) = dict(report.per_case)["hostile"].failure_modes
    return Outcome(mode.code, "it held its slot to the deadline" if mode.code == "sut.timeout" else None)


@attack("exception_without_a_text")
def exception_without_a_text(room: Path) -> Outcome:
    nowhere: Any = 5
    return raised(room, SyntaxError("odd", (nowhere, 1, 1, "text")))


@twin("exception_without_a_text")
def exception_with_a_text(room: Path) -> Outcome:
    return raised(room, SyntaxError("plain", ("file", 1, 1, "text")))


def detail_in_the_log(room: Path, text: str) -> Outcome:
    modes = [{"code": "answer.wrong", "detail": "here"}]
    answer = {"passed": False, "score": 0.0, "breakdown": {}, "failure_modes": modes}
    write_bench(room / "bench", rubric_that_prints(json.dumps(answer)), ("hostile",))
    ask(room, "run", TASK_CLASS, "--sut", "null", "-q")

    def written_by_a_newer_python(record: dict[str, Any]) -> None:
        body = record["body"]
        body["trials"][0]["answer"]["failure_modes"][0]["detail"] = text
        body["report"]["per_case"][0][1]["failure_modes"][0]["detail"] = text

    forge(room / RUNS, 1, written_by_a_newer_python)
    exit_code, _ = ask(room, "verify")
    return Outcome(f"verify {exit_code}", None if exit_code == "exit 0" else "an honest log is refused")


@attack("character_of_another_python")
def character_of_another_python(room: Path) -> Outcome:
    return detail_in_the_log(room, "new \U0001fadd")  # in no Unicode that Python 3.11 to 3.13 know


@twin("character_of_another_python")
def character_of_every_python(room: Path) -> Outcome:
    return detail_in_the_log(room, "old \N{SNOWMAN}")


def policy(room: Path, text: str) -> Outcome:
    file = room / "trust-tiers.yaml"
    file.write_text(text, encoding="utf-8")
    met = refused(lambda: load_policy(file))
    loosened = met == "accepted" and getattr(load_policy(file), "alpha", 0.0) > 0.05
    return Outcome(met, "a comment is in force" if loosened else None)


@attack("policy_in_a_comment")
def policy_in_a_comment(room: Path) -> Outcome:
    return policy(room, "thresholds: {bronze: 0.8}\n# agreed\u2028alpha: 0.2\u2028\n")


@twin("policy_in_a_comment")
def a_comment(room: Path) -> Outcome:
    return policy(room, "thresholds: {bronze: 0.8}\n# agreed, alpha: 0.2\n")
