"""Benches that bend what judges them: names, keys, severities, and the code of the rubric."""

import asyncio
import json
import marshal
import shutil
import sys
from importlib.util import MAGIC_NUMBER
from pathlib import Path

from codegenie.eval.gate.deciding import load_policy
from codegenie.eval.models import BenchRunReport
from codegenie.eval.ports import SutCase, SutResult
from codegenie.eval.registry import TaskClassRegistry, register_task_class
from tests.hostile.attackers.changed_benches import (
    SECRET,
    Agent,
    all_met,
    attempt,
    bench_with,
    met,
    undeserved,
)
from tests.hostile.attackers.hostile_bench import ForeignAgent, refused
from tests.hostile.engine.stage import Outcome, attack, files_that_hold, twin
from tests.support.benches import HONEST_RUBRIC, TASK_CLASS, write_bench
from tests.support.commands import answered, call, eval_argv
from tests.support.stub_benches import (
    Edit,
    appended,
    in_turn,
    link,
    removed,
    replaced,
    write_manifest,
    written,
)

TAXONOMY = "failure_modes.yaml"
KEYS = "breakdown_keys.py"
HELPER = "rubric_lib/helper.py"
NO_IDEA = "no idea"

GENEROUS = "def right(answer, expected):\n    return True\n"
STRICT = "def right(answer, expected):\n    return answer == expected\n"
RUBRIC_WITH_A_HELPER = """\
import json, sys
from rubric_lib.helper import right
request = json.load(sys.stdin)
with open("expected/answer.txt", encoding="utf-8") as file:
    passed = right(request["harness_output"].get("answer"), file.read())
score = float(passed)
answer = {"passed": passed, "score": score, "breakdown": {"accuracy": score}, "failure_modes": []}
json.dump(answer, sys.stdout)
"""


def _answering(**fields: object) -> str:
    answer = {"passed": True, "score": 1.0, "breakdown": {"accuracy": 1.0}, "failure_modes": [], **fields}
    return f"print({json.dumps(answer)!r})\n"


def _helper(source: str) -> Edit:
    def edit(directory: Path) -> None:
        (directory / "rubric_lib").mkdir(exist_ok=True)
        written(HELPER, source)(directory)

    return edit


@attack("one_name_in_two_roots")
def one_name_in_two_roots(room: Path) -> Outcome:
    bench_with(room)
    write_bench(room / "second", _answering())
    roots = [room / "bench", room / "second"]
    orders = (roots, roots[::-1])
    return all_met(undeserved(attempt(room, Agent(room, NO_IDEA), roots=order)) for order in orders)


@twin("one_name_in_two_roots")
def two_names_in_two_roots(room: Path) -> Outcome:
    bench_with(room)
    write_bench(room / "second", _answering(), name="another-class")
    return Outcome(met(attempt(room, Agent(room), roots=[room / "second", room / "bench"])))


def _registered(*names: str) -> Outcome:
    """Register classes in turn; the harm is that the first name leads to another directory."""
    registry = TaskClassRegistry()

    def register() -> None:
        for number, name in enumerate(names):
            register_task_class(name, bench_path=f"bench-{number}", registry=registry)(Path)

    answer = refused(register)
    place = registry.get(names[0]).bench_path
    return Outcome(answer, None if place == "bench-0" else f"{names[0]} leads to {place}")


@attack("name_registered_again")
def name_registered_again(_room: Path) -> Outcome:
    return _registered("honest-class", "honest-class")


@twin("name_registered_again")
def names_registered_once(_room: Path) -> Outcome:
    return _registered("honest-class", "another-class")


def _claims(room: Path, answer: str, rubric: str) -> BenchRunReport | str:
    """Run an agent that says beside its answer how good it is."""

    async def agent(case: SutCase) -> SutResult:
        await asyncio.sleep(0)
        return SutResult({"answer": answer.format(case.case_id)}, 0.0, {"certainty": 1.0})

    bench_with(room, rubric=rubric)
    return attempt(room, agent)


@attack("self_report_beside_the_output")
def self_report_beside_the_output(room: Path) -> Outcome:
    believes = (
        "import json, sys\n"
        "sure = 'certainty' in sys.stdin.read()\n"
        "answer = {'passed': sure, 'score': float(sure), 'breakdown': {}, 'failure_modes': []}\n"
        "json.dump(answer, sys.stdout)\n"
    )
    return undeserved(_claims(room, NO_IDEA, believes))


@twin("self_report_beside_the_output")
def output_that_is_right(room: Path) -> Outcome:
    return Outcome(met(_claims(room, "it is {}", HONEST_RUBRIC)))


def _outside(room: Path, name: str) -> Outcome:
    """Ask for a class that lies outside the root and calls itself by the path to it."""
    shutil.rmtree(room / "outside", ignore_errors=True)
    directory = write_bench(room / "outside") / TASK_CLASS
    replaced("registration.py", TASK_CLASS, name)(directory)
    replaced("cases/one/case.toml", TASK_CLASS, name)(directory)
    write_manifest(directory)
    agent = Agent(room)
    answer = met(attempt(room, agent, name=name))
    return Outcome(answer, f"a bench outside the root was run: {name}" if agent.asked else None)


@attack("name_that_leaves_the_root")
def name_that_leaves_the_root(room: Path) -> Outcome:
    bench_with(room)
    names = (f"../outside/{TASK_CLASS}", f"./../outside/{TASK_CLASS}", str(room / "outside" / TASK_CLASS))
    return all_met(_outside(room, name) for name in names)


@twin("name_that_leaves_the_root")
def name_in_the_root(room: Path) -> Outcome:
    bench_with(room)
    return Outcome(met(attempt(room, Agent(room), name=TASK_CLASS)))


def _emits_its_key(room: Path, key: str) -> Outcome:
    """Declare a key and emit it; the harm is that the log keeps it."""
    shutil.rmtree(room / "runs", ignore_errors=True)
    line = f"    SURE = {json.dumps(key, ensure_ascii=False)}\n"
    bench_with(room, appended(KEYS, line), rubric=_answering(breakdown={key: 1.0}))
    answer = met(attempt(room, Agent(room)))
    kept = files_that_hold(f'"breakdown":{{"{key}"'.encode(), room / "runs")
    return Outcome(answer, f"the log holds the key {key!a}" if kept else None)


@attack("banned_word_in_pieces")
def banned_word_in_pieces(room: Path) -> Outcome:
    keys = ("con.fi_dence", "self.reported", "model.says", "c.o.n.f.i.d.e.n.c.e", "selfreported_score")
    return all_met(_emits_its_key(room, key) for key in keys)


@twin("banned_word_in_pieces")
def innocent_word_in_pieces(room: Path) -> Outcome:
    # Without its separators it holds a banned word that counts as written only.
    outcome = _emits_its_key(room, "all_metrics.total")
    return Outcome(outcome.met)


@attack("banned_word_in_other_letters")
def banned_word_in_other_letters(room: Path) -> Outcome:
    keys = (
        "c\u043enfidence",  # a Cyrillic o
        "con\ufb01dence",  # a ligature
        "conf\u0131dence",  # a dotless i
        "conf\u00adidence",  # a soft hyphen
        "confi\u200ddence",  # a joiner of zero width
        "\uff4c\uff4c\uff4d",  # letters of full width
        "CONFIDENCE",
        "self-reported",
    )
    return all_met(_emits_its_key(room, key) for key in keys)


@twin("banned_word_in_other_letters")
def plain_word(room: Path) -> Outcome:
    return Outcome(_emits_its_key(room, "conformance").met)


@attack("severity_said_twice")
def severity_said_twice(room: Path) -> Outcome:
    again = appended(TAXONOMY, "answer.wrong:\n  severity: info\n  description: looks harmless\n")
    bench_with(room, again, rubric=_answering(failure_modes=[{"code": "answer.wrong"}]))
    return undeserved(attempt(room, Agent(room, NO_IDEA)))


@twin("severity_said_twice")
def severity_said_once(room: Path) -> Outcome:
    bench_with(room, rubric=_answering(failure_modes=[{"code": "answer.noted"}]))
    return Outcome(met(attempt(room, Agent(room))))


def _verified_after(room: Path, *edits: Edit) -> Outcome:
    """Run a rubric that answers nothing; the harm is that its log, which nobody touched, does not hold."""
    bench_with(room, *edits, rubric="print()\n")
    answer = met(attempt(room, Agent(room)))
    if not (room / "runs").exists():
        return Outcome(answer)
    done = call(eval_argv("verify", "--out", str(room / "runs")), room)
    broken = f"a log that nobody touched does not hold: {(done.stdout + done.stderr).strip()[:300]}"
    return Outcome(answer, broken if done.returncode else None)


@attack("lowered_code_of_the_runner")
def lowered_code_of_the_runner(room: Path) -> Outcome:
    lower = "  severity: info\n"
    return all_met(
        _verified_after(room, replaced(TAXONOMY, f"{code}:\n  severity: block\n", f"{code}:\n{lower}"))
        for code in ("rubric.malformed_output", "sut.exception", "sut.timeout")
    )


@twin("lowered_code_of_the_runner")
def codes_of_the_runner(room: Path) -> Outcome:
    return _verified_after(room, appended(TAXONOMY, "answer.odd: {severity: info, description: odd}\n"))


def _verdict_on(room: Path, lowered: str, *, while_it_runs: bool) -> Outcome:
    """Let an agent without answers be measured, perhaps under a lowered severity, and ask the gate."""
    block = "answer.wrong:\n  severity: block\n"
    cases = [f"case-{number}" for number in range(5)]
    directory = bench_with(room, rubric=_answering(failure_modes=[{"code": lowered}]), cases=cases)
    (room / "trust-tiers.yaml").write_text("thresholds: {bronze: 0.5}\n", encoding="utf-8")
    policy = load_policy(room / "trust-tiers.yaml")
    assert policy is not None
    reviewed = (directory / TAXONOMY).read_bytes()
    if while_it_runs:
        replaced(TAXONOMY, block, block.replace("block", "info"))(directory)
    attempt(room, ForeignAgent(reply=lambda _case: {}), policy_digest=policy.digest)
    (directory / TAXONOMY).write_bytes(reviewed)
    asked = ("promote-verdict", TASK_CLASS, "--tier", "bronze", "--out", str(room / "runs"), "--json")
    verdict = answered(call(eval_argv(*asked, "--run", "latest"), room))
    reasons = [reason.partition(":")[0] for reason in verdict["reasons"]]
    return Outcome(" ".join([verdict["verdict"], *reasons]))


@attack("severity_lowered_for_one_run")
def severity_lowered_for_one_run(room: Path) -> Outcome:
    outcome = _verdict_on(room, "answer.wrong", while_it_runs=True)
    sufficient = outcome.met.startswith("sufficient")
    return Outcome(outcome.met, "an agent without answers is sufficient for bronze" if sufficient else None)


@twin("severity_lowered_for_one_run")
def severity_that_never_blocked(room: Path) -> Outcome:
    return _verdict_on(room, "answer.noted", while_it_runs=False)


@attack("bench_without_a_case")
def bench_without_a_case(room: Path) -> Outcome:
    bench_with(room, removed("cases/one"), written("cases/digests.yaml", "{}\n"))
    try:
        answer = met(attempt(room, Agent(room)))
    except ArithmeticError as error:
        answer = f"{type(error).__name__}"
    begun = sorted((room / "runs").glob("*.json"))
    return Outcome(answer, f"the log holds a run of nothing: {begun[0].name}" if begun else None)


@twin("bench_without_a_case")
def bench_with_one_case(room: Path) -> Outcome:
    bench_with(room)
    return Outcome(met(attempt(room, Agent(room))))


def _compiled(path: str) -> Edit:
    """Return an edit that lays compiled code beside the source that it claims to be."""
    unchecked = MAGIC_NUMBER + (1).to_bytes(4, "little") + bytes(8)
    code = compile(GENEROUS, HELPER, "exec")

    def edit(directory: Path) -> None:
        (directory / path).parent.mkdir(parents=True)
        (directory / path).write_bytes(unchecked + marshal.dumps(code))

    return edit


@attack("compiled_code_beside_its_source")
def compiled_code_beside_its_source(room: Path) -> Outcome:
    places = (
        f"rubric_lib/__pycache__/helper.{sys.implementation.cache_tag}.pyc",
        "rubric_lib/helper/__init__.pyc",
    )
    outcomes = []
    for place in places:
        bench_with(room, _helper(STRICT), _compiled(place), rubric=RUBRIC_WITH_A_HELPER)
        outcomes.append(undeserved(attempt(room, Agent(room, NO_IDEA))))
    return all_met(outcomes)


@twin("compiled_code_beside_its_source")
def source_alone(room: Path) -> Outcome:
    bench_with(room, _helper(STRICT), rubric=RUBRIC_WITH_A_HELPER)
    return Outcome(met(attempt(room, Agent(room))))


@attack("helper_changed_after_loading")
def helper_changed_after_loading(room: Path) -> Outcome:
    directory = bench_with(room, _helper(STRICT), rubric=RUBRIC_WITH_A_HELPER)
    agent = Agent(room, NO_IDEA, lambda _case: _helper(GENEROUS)(directory))
    return undeserved(attempt(room, agent))


@twin("helper_changed_after_loading")
def helper_that_stays(room: Path) -> Outcome:
    bench_with(room, _helper(STRICT), rubric=RUBRIC_WITH_A_HELPER)
    return Outcome(met(attempt(room, Agent(room))))


def _judged_twice(room: Path, first: str, answer: str) -> Outcome:
    """Judge with one helper and then with the strict one, with a store for outcomes between them."""
    results = []
    for helper in (first, STRICT):
        bench_with(room, _helper(helper), rubric=RUBRIC_WITH_A_HELPER)
        results.append(attempt(room, Agent(room, answer), cache_dir=room / "cache"))
    return undeserved(results[-1])


@attack("scores_of_another_helper")
def scores_of_another_helper(room: Path) -> Outcome:
    return _judged_twice(room, GENEROUS, NO_IDEA)


@twin("scores_of_another_helper")
def scores_of_the_same_helper(room: Path) -> Outcome:
    return Outcome(_judged_twice(room, STRICT, "it is {}").met)


def _reads_its_library(room: Path, *edits: Edit) -> Outcome:
    """Run a rubric that tells what its library holds; the harm is a secret in the log."""
    (room / "secret").write_bytes(SECRET)
    tell = "import sys\nsys.stderr.write(open('rubric_lib/notes.txt').read())\n"
    bench_with(room, _helper(STRICT), *edits, rubric=tell + HONEST_RUBRIC)
    answer = met(attempt(room, Agent(room)))
    leaked = files_that_hold(SECRET, room / "runs") if (room / "runs").exists() else []
    return Outcome(
        answer, f"a file from outside the bench stands in {Path(leaked[0]).name}" if leaked else None
    )


@attack("library_that_links_outside")
def library_that_links_outside(room: Path) -> Outcome:
    return _reads_its_library(room, link("rubric_lib/notes.txt", str(room / "secret")))


@twin("library_that_links_outside")
def library_with_a_file(room: Path) -> Outcome:
    return _reads_its_library(room, in_turn(written("rubric_lib/notes.txt", "notes\n")))
