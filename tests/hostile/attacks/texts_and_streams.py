"""Texts that have two readings, texts and streams that stop a command, and agents under another name."""

import json
import py_compile
import subprocess
import zipfile
from pathlib import Path
from typing import Any

from codegenie.eval.gate.deciding import load_policy
from codegenie.eval.ports import SutCase
from tests.hostile.attackers.hostile_bench import refused, rubric_that_prints, run_hostile
from tests.hostile.engine.stage import Outcome, attack, twin
from tests.support.benches import TASK_CLASS, right_answer, write_bench
from tests.support.commands import call, environment, eval_argv
from tests.support.logs import forge
from tests.support.working_directory import furnish

GOOD = "def solve(case):\n    return {'answer': 'it is ' + case.case_id}\n"
IDLE = "def solve(case):\n    return {}\n"
RUNS = Path(".codegenie") / "eval" / "runs"


def ask(room: Path, *arguments: str, **variables: str) -> tuple[str, dict[str, Any]]:
    """Call the command line in a room; return its exit code with the type of a refusal, and its document."""
    program, *rest = eval_argv(*arguments, "--json")
    # -P: the room is the attacker's, and `-m` would let it replace modules of the harness itself.
    done = call([program, "-P", *rest], room, environment(**variables))
    document: dict[str, Any] = json.loads(done.stdout)
    kind = document.get("error", {}).get("type")
    return f"exit {done.returncode} {kind}" if kind else f"exit {done.returncode}", document


def measure(room: Path, module: str = "agent", *more: str, **variables: str) -> tuple[str, dict[str, Any]]:
    """Run two cases against an agent that lies in the room."""
    if not (room / "bench").exists():
        write_bench(room / "bench", cases=("one", "two"))
    return ask(room, "run", TASK_CLASS, "--sut", f"python:{module}:solve", "-q", *more, **variables)


def passed(document: dict[str, Any]) -> str:
    return f"{document['report']['passed_count']} of 2 passed"


def earned_by_another(document: dict[str, Any]) -> str | None:
    return "an agent that does nothing passed" if document["report"]["passed_count"] else None


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


@attack("compiled_agent_beside_its_source")
def compiled_agent_beside_its_source(room: Path) -> Outcome:
    (room / "agent.py").write_text(GOOD, encoding="utf-8")
    py_compile.compile(
        str(room / "agent.py"), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH
    )
    (room / "agent.py").write_text(IDLE, encoding="utf-8")
    _, document = measure(room)
    return Outcome(passed(document), earned_by_another(document))


@twin("compiled_agent_beside_its_source")
def compiled_agent_of_its_source(room: Path) -> Outcome:
    (room / "agent.py").write_text(GOOD, encoding="utf-8")
    py_compile.compile(str(room / "agent.py"))
    return Outcome(passed(measure(room)[1]))


@attack("agent_edited_under_way")
def agent_edited_under_way(room: Path) -> Outcome:
    # It rewrites itself when it is imported to be looked at, before the first case.
    edit = f"open(__file__, 'w').write({GOOD!r})\n"
    (room / "agent.py").write_text(edit + IDLE, encoding="utf-8")
    met, document = measure(room)
    return Outcome(met, earned_by_another(document) if "report" in document else None)


@twin("agent_edited_under_way")
def agent_that_reads_itself(room: Path) -> Outcome:
    (room / "agent.py").write_text("open(__file__).read()\n" + GOOD, encoding="utf-8")
    return Outcome(measure(room)[0])


@attack("agent_with_a_taken_name")
def agent_with_a_taken_name(room: Path) -> Outcome:
    (room / "json.py").write_text("def solve(case):\n    return {}\n", encoding="utf-8")
    write_bench(room / "bench", cases=("one", "two"))
    met, document = ask(room, "run", TASK_CLASS, "--sut", "python:json:dumps", "-q")
    return Outcome(met, "another json was measured" if "report" in document else None)


@twin("agent_with_a_taken_name")
def agent_with_a_name_of_its_own(room: Path) -> Outcome:
    (room / "json_agent.py").write_text(GOOD, encoding="utf-8")
    return Outcome(measure(room, "json_agent")[0])


def two_models(room: Path, second: str) -> Outcome:
    source = (
        "import os\ndef solve(case):\n    return {'answer': os.environ['MODEL'] + ' is ' + case.case_id}\n"
    )
    (room / "agent.py").write_text(source, encoding="utf-8")
    flags = ("--sut-version", "1", "--sut-env", "MODEL")
    measure(room, "agent", *flags, MODEL="it")
    _, document = measure(room, "agent", *flags, MODEL=second)
    return Outcome(passed(document), earned_by_another(document) if second != "it" else None)


@attack("two_models_one_version")
def two_models_one_version(room: Path) -> Outcome:
    return two_models(room, "weak")


@twin("two_models_one_version")
def one_model_twice(room: Path) -> Outcome:
    return two_models(room, "it")


def judged(room: Path, *whose: str) -> str:
    _, verdict = ask(room, "promote-verdict", TASK_CLASS, "--tier", "bronze", *whose)
    reasons = sorted({reason.partition(":")[0] for reason in verdict["reasons"]})
    return ": ".join([verdict["verdict"], *reasons])


def promoted(verdict: str) -> str | None:
    return "it is promoted" if verdict == "sufficient" else None


def luck(room: Path, *words: str) -> str:
    """Measure one agent under a new version for each word; only `it is` is right."""
    furnish(room)
    answer = f"return {{'answer': open({str(room / 'word')!r}).read() + case.case_id}}"
    (room / "agents.py").write_text(f"def right(case):\n    {answer}\n", encoding="utf-8")
    for version, word in enumerate(words):
        (room / "word").write_text(word, encoding="utf-8")
        arguments = ("--sut-version", f"1.{version}", "--no-cache")
        ask(room, "run", TASK_CLASS, "--sut", "python:agents:right", "-q", *arguments)
    return judged(room)


@attack("another_label_another_try")
def another_label_another_try(room: Path) -> Outcome:
    verdict = luck(room, "it was ", "it is ")
    return Outcome(verdict, promoted(verdict))


@twin("another_label_another_try")
def one_try(room: Path) -> Outcome:
    return Outcome(luck(room, "it is "))


def aged(room: Path, *, old: bool) -> str:
    furnish(room)
    ask(room, "run", TASK_CLASS, "--sut", "oracle", "-q")
    (room / "agents.py").write_text(GOOD, encoding="utf-8")
    ask(room, "run", TASK_CLASS, "--sut", "python:agents:solve", "-q")
    if old:
        forge(room / RUNS, 2, lambda record: record.update(recorded_at="2020-01-01T00:00:00Z"))
    return judged(room, "--sut", "python:agents:solve")


@attack("old_run_resumed_today")
def old_run_resumed_today(room: Path) -> Outcome:
    verdict = aged(room, old=True)
    return Outcome(verdict, promoted(verdict))


@twin("old_run_resumed_today")
def run_begun_today(room: Path) -> Outcome:
    return Outcome(aged(room, old=False))


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
