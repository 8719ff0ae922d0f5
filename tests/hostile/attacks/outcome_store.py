"""Entries of the outcome store that were edited, moved, invented or removed, and luck made with it."""

import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from codegenie.eval.canonical import canonical_json
from codegenie.eval.decoding import decode_json
from codegenie.eval.models import SutIdentity
from codegenie.eval.ports import SutCase
from codegenie.eval.store.outcomes import OutcomeStore, Place
from tests.hostile.attackers.hostile_bench import ForeignAgent, advice, ask, policy_in, units
from tests.hostile.engine.stage import Outcome, attack, environment, files_that_hold, twin
from tests.support.benches import TASK_CLASS, CaseFiles, write_bench
from tests.support.logs import forge, read_records, record_files, record_run
from tests.support.stores import Bench, NotingSut, tagged

WRONG = "it is not"


def measured(room: Path, answer: str = WRONG) -> Bench:
    """Run a bench of one case once, so that an output and a score of it are stored."""
    write_bench(room / "bench")
    bench = Bench(room, NotingSut(answer=answer))
    bench.run()
    return bench


def entry_of(bench: Bench, kind: str) -> Path:
    """Return the one entry of a kind."""
    (path,) = (bench.store / kind).rglob("*.json")
    return path


def again(bench: Bench, policy_digest: str | None = None) -> Outcome:
    """Run once more: an agent that never answered rightly must not have passed, whatever is stored."""
    bench.run(policy_digest=policy_digest)
    report = read_records(bench.log)[-1]["body"]["report"]
    got = f"the log says that {report['passed_count']} passed" if report["passed_count"] else None
    return Outcome("; ".join(bench.recorded.notes) or f"reused {' '.join(bench.reused())}", got)


def passed_before(bench: Bench) -> Outcome:
    """Run once more an agent that passed honestly, which is no harm."""
    return Outcome(again(bench).met)


# Edited, invented and moved.


@attack("edited_score")
def edited_score(room: Path) -> Outcome:
    bench = measured(room)
    path = entry_of(bench, "scores")
    better = path.read_bytes().replace(b'"passed":false,"score":0.0', b'"passed":true,"score":1.0')
    path.write_bytes(better)
    return again(bench)


@twin("edited_score")
def an_untouched_score(room: Path) -> Outcome:
    return passed_before(measured(room, "it is one"))


@attack("invented_score")
def invented_score(room: Path) -> Outcome:
    bench = measured(room)
    path = entry_of(bench, "scores")
    entry = decode_json(path.read_bytes()[:-65], 1 << 20)
    entry["value"] |= {"passed": True, "score": 1.0}
    body = canonical_json(entry)
    path.write_bytes(tagged(bench.store, body))
    bench.run()
    said = ask(room, "verify", "--out", "runs", "--rescore", "--json")
    return Outcome(f"exit {said.code}", None if said.code else "a score that no rubric gave is verified")


@twin("invented_score")
def a_score_that_was_given(room: Path) -> Outcome:
    measured(room, "it is one").run()
    return Outcome(f"exit {ask(room, 'verify', '--out', 'runs', '--rescore', '--json').code}")


@attack("entry_of_another_key")
def entry_of_another_key(room: Path) -> Outcome:
    bench = measured(room, "it is one")
    better = entry_of(bench, "outputs")
    bench.sut = NotingSut(SutIdentity(spec="command:noting", version="2"), answer=WRONG)
    bench.run()
    (worse,) = set((bench.store / "outputs").rglob("*.json")) - {better}
    shutil.copyfile(better, worse)
    return again(bench)


@twin("entry_of_another_key")
def the_entry_of_its_own_key(room: Path) -> Outcome:
    bench = measured(room, "it is one")
    path = entry_of(bench, "outputs")
    kept = path.read_bytes()
    path.unlink()
    path.write_bytes(kept)
    return passed_before(bench)


def knows_one(case: SutCase) -> dict[str, str]:
    """Answer the one case that the agent knows."""
    return {"answer": "it is one" if case.case_id == "one" else WRONG}


def two_of_one_question(room: Path) -> Bench:
    """Run a bench of two cases with the same input and the same answer."""
    question = {"input/question.txt": "what is it?\n", "expected/answer.txt": "it is one"}
    write_bench(room / "bench", cases=[CaseFiles("one", question), CaseFiles("two", question)])
    bench = Bench(room, ForeignAgent(reply=knows_one))
    bench.run()
    return bench


@attack("entry_of_another_case")
def entry_of_another_case(room: Path) -> Outcome:
    bench = two_of_one_question(room)
    outputs = bench.store / "outputs" / TASK_CLASS
    for path in (outputs / "one").iterdir():
        shutil.copyfile(path, outputs / "two" / path.name)
    bench.run()
    passed = read_records(bench.log)[-1]["body"]["report"]["passed_count"]
    return Outcome(
        "; ".join(bench.recorded.notes), f"{passed} cases passed of one that it knows" if passed > 1 else None
    )


@twin("entry_of_another_case")
def the_entry_of_its_own_case(room: Path) -> Outcome:
    bench = two_of_one_question(room)
    bench.run()
    return Outcome(f"reused {' '.join(bench.reused())}")


class Payload:
    """Leaves a file when it is unpickled."""

    def __init__(self, witness: Path) -> None:
        self.witness = witness

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return Path.touch, (self.witness,)


@attack("pickled_entry")
def pickled_entry(room: Path) -> Outcome:
    bench = measured(room)
    witness = room / "unpickled"
    for kind in ("outputs", "scores"):
        body = pickle.dumps(Payload(witness))
        entry_of(bench, kind).write_bytes(tagged(bench.store, body))
    met = again(bench).met
    return Outcome(met, "code of an entry ran when it was read" if witness.exists() else None)


@twin("pickled_entry")
def an_entry_that_is_data(room: Path) -> Outcome:
    return passed_before(measured(room, "it is one"))


# Luck.


_MOODY = """\
import json, os, sys
if not os.path.exists({mood!r}):
    open({mood!r}, "w").close()
    sys.exit(3)
json.dump({{"passed": True, "score": 1.0, "breakdown": {{}}, "failure_modes": []}}, sys.stdout)
"""


def moody(room: Path) -> Bench:
    """Return a bench whose rubric fails until a file is there, and makes it."""
    write_bench(room / "bench", _MOODY.format(mood=str(room / "mood")))
    return Bench(room)


@attack("rubric_failure_retried_until_it_passes")
def rubric_failure_retried_until_it_passes(room: Path) -> Outcome:
    bench = moody(room)
    bench.run()
    return again(bench)


@twin("rubric_failure_retried_until_it_passes")
def a_rubric_in_a_good_mood(room: Path) -> Outcome:
    bench = moody(room)
    (room / "mood").touch()
    bench.run()
    return passed_before(bench)


@attack("run_from_the_store_is_not_logged")
def run_from_the_store_is_not_logged(room: Path) -> Outcome:
    bench = measured(room)
    before = len(record_files(bench.log))
    bench.run()
    grown = len(record_files(bench.log)) - before
    whole = grown == 2 and read_records(bench.log)[-1]["body"]["trials"][0]["reused"] == "both"
    return Outcome(f"{grown} records", None if whole else "a report was made that the log does not hold")


@twin("run_from_the_store_is_not_logged")
def a_measured_run_is_logged(room: Path) -> Outcome:
    return Outcome(f"{len(record_files(measured(room).log))} records")


def measured_as(room: Path, reused: str) -> str:
    """Run an agent that is right, say of its trials what came from a store, and ask for the verdict."""
    write_bench(room / "bench", cases=units())
    record_run(room / "bench", room / "runs", ForeignAgent(), policy_digest=policy_in(room).digest)

    def edit(finish: dict[str, Any]) -> None:
        for trial in finish["body"]["trials"]:
            trial["reused"] = reused

    forge(room / "runs", 1, edit)
    return advice(room)


@attack("evidence_from_the_store_alone")
def evidence_from_the_store_alone(room: Path) -> Outcome:
    met = measured_as(room, "both")
    return Outcome(met, "a log in which no agent was asked is sufficient" if met == "sufficient" else None)


@twin("evidence_from_the_store_alone")
def evidence_of_the_log_that_asked(room: Path) -> Outcome:
    return Outcome(measured_as(room, "none"))


SECRET = "sk-store-leak-8e1f"


def leaking(room: Path, answer: str) -> Bench:
    """Run an agent that returns this under a variable that holds a secret."""
    with environment(CANARY_API_KEY=SECRET):
        return measured(room, answer)


@attack("secret_in_the_store")
def secret_in_the_store(room: Path) -> Outcome:
    bench = leaking(room, f"the key is {SECRET}")
    kept = len(list((bench.store / "outputs").rglob("*.json")))
    found = files_that_hold(SECRET.encode(), bench.store, bench.log)
    return Outcome(f"{kept} outputs kept", f"the secret stands in {len(found)} files" if found else None)


@twin("secret_in_the_store")
def an_output_without_a_secret_is_kept(room: Path) -> Outcome:
    bench = leaking(room, "the key is under the mat")
    return Outcome(f"{len(list((bench.store / 'outputs').rglob('*.json')))} outputs kept")


@attack("prune_follows_a_link")
def prune_follows_a_link(room: Path) -> Outcome:
    bench = measured(room)
    precious = room / "precious" / "case"
    precious.mkdir(parents=True)
    (precious / f"{'a' * 64}.json").write_text("not an outcome", encoding="utf-8")
    (bench.store / "outputs" / "another-class").symlink_to(room / "precious")
    said = ask(room, "cache", "prune", "--cache", "cache", "--older-than", "0", "--json")
    gone = not (precious / f"{'a' * 64}.json").exists()
    return Outcome(
        f"removed {said.document['removed']}", "a file outside the store is gone" if gone else None
    )


@twin("prune_follows_a_link")
def prune_of_a_plain_store(room: Path) -> Outcome:
    measured(room)
    store = OutcomeStore(room / "cache")
    store.put("outputs", Place("another-class", "case"), {"trial": 0}, b"{}")
    said = ask(room, "cache", "prune", "--cache", "cache", "--older-than", "0", "--json")
    return Outcome(f"removed {said.document['removed']}")
