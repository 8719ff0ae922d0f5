"""`verify`: what it recomputes, what it names when something does not hold, what it could not check."""

import json
import os
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from codegenie.eval.models import IsolationClass
from tests.support.benches import HONEST_RUBRIC, TASK_CLASS, write_bench
from tests.support.commands import answered, call, eval_argv
from tests.support.logs import forge, probes, read_records, reckon, record_files, write_log
from tests.support.working_directory import UNITS, Desk

HASH = re.compile(r"[0-9a-f]{64}")


def case_file(desk: Desk, name: str = "expected/answer.txt") -> Path:
    return desk.directory / "bench" / TASK_CLASS / "cases" / "case-00" / name


def artefacts(desk: Desk) -> list[Path]:
    return sorted(path for path in (desk.log / "artifacts").rglob("*") if path.is_file())


def flip(path: Path, at: int = -2) -> None:
    raw = bytearray(path.read_bytes())
    raw[at] ^= 1
    path.write_bytes(raw)


def rewrite_rubric(desk: Desk, text: str) -> None:
    (desk.directory / "bench" / TASK_CLASS / "rubric.py").write_text(text, encoding="utf-8")


# What holds.


def test_an_honest_log_is_verified_with_all_its_fields(desk: Desk) -> None:
    said = desk.ask("verify", "--json")

    assert said.code == 0
    assert said.document["schema"] == "codegenie.eval.verify/1"
    assert said.document["ok"] is True
    assert said.document["records"] == 2
    assert said.document["not_checked"] == []
    assert said.document["artifacts_checked"] > UNITS
    assert HASH.fullmatch(said.document["chain_head"])
    assert "reason" not in said.document


def test_the_head_is_the_hash_of_the_run_that_run_printed(desk: Desk) -> None:
    ran = desk.run("right", "--sut-version", "1", "--json").document
    head = desk.ask("verify", "--json").document["chain_head"]

    assert ran["chain_head"] == head
    assert (desk.log / "HEAD").read_text(encoding="utf-8") == f"4 {head}\n"


def test_every_record_of_the_log_may_be_expected_and_no_other(desk: Desk) -> None:
    first = desk.ask("verify", "--json").document["chain_head"]
    desk.run("right", "--sut-version", "1")

    assert desk.ask("verify", "--expect-head", first).code == 0
    for unknown in ("0" * 64, "f" * 64, first[::-1]):
        said = desk.ask("verify", "--expect-head", unknown, "--json")
        assert said.code == 3
        assert said.document["ok"] is False
        assert unknown in said.document["reason"]
        assert said.document["records"] == 4


@pytest.mark.parametrize(
    "head", ["", "abc", "g" * 64, "A" * 64, "0" * 65, "blake3:" + "0" * 64, "0" * 64 + "\n"]
)
def test_an_expected_head_that_is_no_hash_is_a_mistake_of_the_caller(desk: Desk, head: str) -> None:
    assert desk.ask("verify", "--expect-head", head, "--json").refusal == (2, "SettingsInvalid")


def test_a_log_that_lost_its_tail_or_all_of_itself_is_found_by_the_expected_head(desk: Desk) -> None:
    desk.run("right", "--sut-version", "1")
    head = desk.ask("verify", "--json").document["chain_head"]
    before = json.loads(record_files(desk.log)[2].read_bytes())["previous"]
    for record in record_files(desk.log)[2:]:
        record.unlink()
    (desk.log / "HEAD").write_text(f"2 {before}\n", encoding="utf-8")

    assert desk.ask("verify").code == 0
    assert desk.ask("verify", "--expect-head", head).code == 3
    shutil.rmtree(desk.log)
    assert desk.ask("verify", "--expect-head", head).code == 3


def test_no_log_is_nothing_verified(desk: Desk) -> None:
    (desk.directory / "empty").mkdir()
    for out in ("empty", "nowhere"):
        assert desk.ask("verify", "--out", out, "--json").refusal == (4, "NotMeasured")


# A copy elsewhere.


def test_a_copied_log_is_verified_elsewhere_and_says_that_the_bench_is_missing(
    desk: Desk, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    elsewhere = Desk(tmp_path / "elsewhere", capsys)
    shutil.copytree(desk.log, elsewhere.directory / "log")

    whole = elsewhere.ask("verify", "--out", "log", "--json")
    shutil.rmtree(elsewhere.directory / "log" / "artifacts")
    bare = elsewhere.ask("verify", "--out", "log", "--json")
    text = elsewhere.ask("verify", "--out", "log")

    assert (whole.code, whole.document["not_checked"]) == (0, ["case_digests"])
    assert (bare.code, bare.document["not_checked"]) == (0, ["case_digests", "artifacts"])
    assert bare.document["artifacts_checked"] == 0
    assert bare.document["chain_head"] == whole.document["chain_head"]
    assert "not checked   case_digests, artifacts" in text.out


def test_one_artefact_that_is_gone_is_told(desk: Desk) -> None:
    artefacts(desk)[0].unlink()
    said = desk.ask("verify", "--json")

    assert said.code == 0
    assert said.document["artifacts_missing"] == 1
    assert said.document["not_checked"] == ["artifacts"]


def replaced_by_link(path: Path) -> None:
    shutil.copy(path, path.with_suffix(".copy"))
    path.unlink()
    path.symlink_to(path.with_suffix(".copy"))


def replaced_by_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def replaced_by_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


DAMAGE: dict[str, Callable[[Path], object]] = {
    "a flipped bit": flip,
    "an appended byte": lambda path: path.write_bytes(path.read_bytes() + b"\n"),
    "no bytes": lambda path: path.write_bytes(b""),
    "a link to the same bytes": replaced_by_link,
    "a directory": replaced_by_directory,
    "a pipe": replaced_by_pipe,
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_an_artefact_that_is_there_and_wrong_is_an_integrity_error(desk: Desk, damage: str) -> None:
    victim = artefacts(desk)[3]
    DAMAGE[damage](victim)
    said = desk.ask("verify", "--json")

    assert said.code == 3
    assert said.document["ok"] is False
    assert said.document["file"] == f"artifacts/{victim.parent.name}/{victim.name}"
    assert said.document["chain_head"] is None


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("index", [0, 1])
def test_a_record_that_is_there_and_wrong_is_named(desk: Desk, index: int, damage: str) -> None:
    DAMAGE[damage](record_files(desk.log)[index])
    said = desk.ask("verify", "--json")

    assert said.code == 3
    assert said.document["file"] == f"{index:08}.json"
    assert said.document["records"] == index
    assert said.document["not_checked"] == ["case_digests", "artifacts"]
    assert desk.verdict().refusal[0] == 3
    assert desk.ask("show", "latest", "--json").refusal[0] == 3
    assert desk.ask("export", "latest", "-o", "x.zip", "--json").refusal[0] == 3
    assert desk.run("right", "--json").refusal[0] == 3


def forged_mean(record: dict[str, Any]) -> None:
    record["body"]["report"]["mean_score"] = 0.5


def forged_pass(record: dict[str, Any]) -> None:
    record["body"]["trials"][0]["answer"]["passed"] = False


def forged_bound(record: dict[str, Any]) -> None:
    record["body"]["report"]["certified_lower_95"] = 0.99


@pytest.mark.parametrize("edit", [forged_mean, forged_pass, forged_bound])
def test_a_forged_log_with_consistent_hashes_is_found_out_by_its_numbers(
    desk: Desk, edit: Callable[[dict[str, Any]], None]
) -> None:
    forge(desk.log, 1, edit)
    said = desk.ask("verify")

    assert said.code == 3
    assert said.out.startswith("NOT VERIFIED  00000001.json fails verification: ")
    assert "where         00000001.json\n" in said.out


def test_a_clock_that_went_back_is_told_and_is_no_error(desk: Desk) -> None:
    def go_back(record: dict[str, Any]) -> None:
        record["recorded_at"] = record["body"]["report"]["ended_at"] = "2001-01-01T00:00:00Z"

    forge(desk.log, 1, go_back)
    said = desk.ask("verify", "--json")

    assert said.code == 0
    assert [
        note for note in said.document["notes"] if "the clock went back: 1 record from 00000001.json" in note
    ]


# The bench.


def test_one_flipped_bit_of_a_case_is_an_integrity_error_that_leaves_the_log_whole(desk: Desk) -> None:
    flip(case_file(desk))
    said = desk.ask("verify", "--json")

    assert said.code == 3
    assert said.document["file"] == f"{TASK_CLASS}/cases/case-00"
    assert said.document["benches_stale"] == {TASK_CLASS: "case-00"}
    assert HASH.fullmatch(said.document["chain_head"])
    assert "log holds " in desk.ask("verify").out
    assert desk.verdict().refusal == (3, "BenchCaseDigestMismatch")


def test_a_bench_that_was_changed_and_signed_anew_is_told(desk: Desk) -> None:
    flip(case_file(desk))
    assert desk.ask("digest", TASK_CLASS, "--write").code == 0
    said = desk.ask("verify", "--json")

    assert said.code == 0
    assert said.document["benches_changed"] == [TASK_CLASS]
    assert said.document["not_checked"] == ["case_digests"]


START_AGAINST_THE_BENCH: dict[str, Callable[[dict[str, Any]], object]] = {
    "another family": lambda body: body["cases"][0].update(family="the-one"),
    "another curation class": lambda body: body["cases"][0].update(curation_class="rag-corpus-derived"),
    "another severity": lambda body: body["severities"].update({"answer.noted": "warn"}),
    "another key": lambda body: body["breakdown_keys"].append("charm"),
}


@pytest.mark.parametrize("what", START_AGAINST_THE_BENCH)
def test_a_start_that_says_of_the_bench_what_its_bytes_do_not_is_named(desk: Desk, what: str) -> None:
    start, finish = read_records(desk.log)
    START_AGAINST_THE_BENCH[what](start["body"])
    reckon(start, finish)
    write_log(desk.log, [start, finish])
    said = desk.ask("verify", "--json")
    elsewhere = desk.ask("verify", "--json", "--bench-root", "nowhere")

    assert (said.code, said.document["file"]) == (3, "00000000.json")
    assert desk.verdict().document["reasons"][0].startswith("bench_changed")
    assert (elsewhere.code, elsewhere.document["not_checked"]) == (0, ["case_digests"])


def test_a_bench_that_cannot_be_loaded_is_named_and_does_not_decide_about_the_log(desk: Desk) -> None:
    (desk.directory / "bench" / TASK_CLASS / "extra.txt").touch()
    said = desk.ask("verify", "--json")

    assert (said.code, said.document["not_checked"]) == (0, ["case_digests"])
    assert "'extra.txt'" in said.document["benches_invalid"][TASK_CLASS]
    assert f"{TASK_CLASS} cannot be read: " in desk.ask("verify").out
    assert desk.verdict().refusal == (2, "BenchInvalid")


def test_one_stale_bench_does_not_stop_the_others_and_can_be_left_out(desk: Desk) -> None:
    write_bench(desk.directory / "bench", HONEST_RUBRIC, ["one"], name="other")
    assert desk.ask("run", "other", "--sut", "null", "-q").code == 0
    flip(desk.directory / "bench" / "other" / "cases" / "one" / "input" / "question.txt")
    everything = desk.ask("verify", "--rescore", "--json")
    ours = desk.ask("verify", "--task-class", TASK_CLASS, "--json")

    assert (everything.code, everything.document["file"]) == (3, "other/cases/one")
    assert everything.document["rescored"] == UNITS
    assert (ours.code, ours.document["not_checked"]) == (0, ["case_digests"])
    assert desk.ask("verify", "--task-class", "third", "--json").refusal == (4, "NotMeasured")


# Rubrics again.

RANDOM_RUBRIC = """\
import json, random
score = random.SystemRandom().random()
print(json.dumps({"passed": True, "score": max(score, 1e-3), "breakdown": {}, "failure_modes": []}))
"""
TIMED_RUBRIC = """\
import json, time
detail = str(time.time_ns())
mode = {"code": "answer.noted", "severity": "info", "detail": detail}
print(json.dumps({"passed": True, "score": 1.0, "breakdown": {}, "failure_modes": [mode]}))
"""


def test_rubrics_that_say_the_same_again_are_no_difference(desk: Desk) -> None:
    said = desk.ask("verify", "--rescore", "--json")

    assert said.code == 0
    assert (said.document["rescored"], said.document["not_rescored"]) == (UNITS, 0)
    assert said.document["differences"] == []
    assert said.document["not_checked"] == []


@pytest.mark.parametrize("rubric", [RANDOM_RUBRIC, TIMED_RUBRIC])
def test_a_rubric_that_differs_from_itself_is_named_as_such(fresh_desk: Desk, rubric: str) -> None:
    rewrite_rubric(fresh_desk, rubric)
    assert fresh_desk.run().code == 0
    said = fresh_desk.ask("verify", "--rescore", "--json")
    text = fresh_desk.ask("verify", "--rescore").out

    assert said.code == 3
    assert {difference["kind"] for difference in said.document["differences"]} == {"nondeterministic"}
    assert {difference["case_id"] for difference in said.document["differences"]} == {"case-00", "case-01"}
    assert said.document["file"] == "00000001.json"
    assert fresh_desk.ask("verify").code == 0
    assert text.count("nondeterministic") == 2


def test_an_answer_that_the_rubric_did_not_give_is_found_by_rescoring(desk: Desk) -> None:
    def whiten(record: dict[str, Any]) -> None:
        record["body"]["trials"][0]["answer"]["breakdown"] = {"accuracy": 0.5}
        record["body"]["report"]["per_case"][0][1]["breakdown"] = {"accuracy": 0.5}

    forge(desk.log, 1, whiten)
    assert desk.ask("verify").code == 0
    said = desk.ask("verify", "--rescore", "--json")

    assert said.code == 3
    assert [(one["case_id"], one["kind"]) for one in said.document["differences"]] == [("case-00", "differs")]


def test_a_changed_rubric_is_not_run_on_outputs_that_it_did_not_judge(desk: Desk) -> None:
    rewrite_rubric(desk, RANDOM_RUBRIC)
    said = desk.ask("verify", "--rescore", "--json")

    assert (said.code, said.document["reason"]) == (
        4,
        f"nothing could be rescored: bench {TASK_CLASS} has changed",
    )
    assert (said.document["rescored"], said.document["not_rescored"]) == (0, UNITS)
    assert said.document["not_checked"] == ["case_digests", "rescore"]
    assert said.document["chain_head"]
    assert desk.ask("verify", "--rescore").out.startswith("NOT RESCORED  nothing could be rescored: ")


def test_outputs_that_are_gone_are_not_taken_for_rescored(desk: Desk) -> None:
    shutil.rmtree(desk.log / "artifacts")
    said = desk.ask("verify", "--rescore", "--json")

    assert (said.code, said.document["ok"]) == (4, False)
    assert "its outputs are missing" in said.document["reason"]
    assert (said.document["rescored"], said.document["not_rescored"]) == (0, UNITS)
    assert said.document["not_checked"] == ["artifacts", "rescore"]


def test_outputs_that_the_log_does_not_name_are_not_taken_for_rescored(desk: Desk) -> None:
    def forget(record: dict[str, Any]) -> None:
        for trial in record["body"]["trials"]:
            trial["artifacts"] = {}

    forge(desk.log, 1, forget)
    said = desk.ask("verify", "--rescore", "--json")

    assert (said.code, said.document["rescored"], said.document["not_rescored"]) == (4, 0, UNITS)
    assert "rescore" in said.document["not_checked"]


def named(desk: Desk, isolation_class: IsolationClass) -> None:
    """Have the log say that its rubrics ran in this class."""
    proof = {"isolation_class": isolation_class, "probes": probes(isolation_class)}
    forge(desk.log, 0, lambda record: record["body"]["isolation"].update(proof))
    forge(desk.log, 1, lambda record: record["body"]["report"].update(isolation_class=isolation_class))


def test_a_run_is_rescored_in_the_strongest_class_here_and_not_in_the_one_that_it_names(desk: Desk) -> None:
    named(desk, "subprocess")
    said = desk.ask("verify", "--rescore", "--json")
    text = desk.ask("verify", "--rescore").out

    assert (said.code, said.document["rescored"]) == (0, UNITS)
    assert said.document["rescored_in"] == "namespace"
    assert list(said.document["other_classes"].values()) == ["subprocess"]
    assert f"rescored      {UNITS} outputs in class namespace" in text
    assert "names subprocess, and was rescored in namespace" in text


def test_no_file_and_no_variable_makes_the_walls_of_a_rescoring_weaker(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    (desk.directory / "pyproject.toml").write_text(
        '[tool.codegenie.eval]\nisolation = "subprocess"\n', encoding="utf-8"
    )
    monkeypatch.setenv("CODEGENIE_EVAL_ISOLATION", "subprocess")

    assert desk.ask("verify", "--rescore", "--json").document["rescored_in"] == "namespace"


def test_a_weaker_class_for_a_rescoring_has_to_be_named_by_a_flag(desk: Desk) -> None:
    denied = [
        sys.executable,
        str(Path(__file__).parents[1] / "support" / "without_namespaces.py"),
        "--nor-landlock",
    ]
    refused = call([*denied, *eval_argv("verify", "--rescore", "--json")], desk.directory)
    again = eval_argv("verify", "--rescore", "--isolation", "subprocess", "--json")
    accepted = call([*denied, *again], desk.directory)

    assert (refused.returncode, answered(refused)["error"]["type"]) == (4, "IsolationUnavailable")
    assert "--isolation subprocess" in answered(refused)["error"]["hint"]
    assert (accepted.returncode, answered(accepted)["rescored_in"]) == (0, "subprocess")


CLASS_RUBRIC = """\
import json, os
score = 1.0 if os.path.exists("/etc") else 0.5
print(json.dumps({"passed": True, "score": score, "breakdown": {}, "failure_modes": []}))
"""


def test_a_score_that_differs_by_its_class_is_a_difference_that_names_both(fresh_desk: Desk) -> None:
    rewrite_rubric(fresh_desk, CLASS_RUBRIC)
    assert fresh_desk.run("right", "--isolation", "subprocess").code == 0
    said = fresh_desk.ask("verify", "--rescore", "--json")
    text = fresh_desk.ask("verify", "--rescore").out

    assert said.code == 3
    assert {(one["stored_in"], one["now_in"]) for one in said.document["differences"]} == {
        ("subprocess", "namespace")
    }
    assert "(in namespace, where the run says subprocess)" in said.document["reason"]
    assert "score 1.000000 in the log (subprocess), 0.500000 now (namespace)" in text


def test_an_agent_that_failed_left_nothing_to_rescore(fresh_desk: Desk) -> None:
    (fresh_desk.directory / "agents.py").write_text(
        "def right(case):\n    raise SystemExit(3)\n", encoding="utf-8"
    )
    assert fresh_desk.run().code == 0
    said = fresh_desk.ask("verify", "--rescore", "--json")

    assert (said.code, said.document["rescored"], said.document["not_rescored"]) == (4, 0, 0)
    assert "no run of the log left an output" in said.document["reason"]


# Every command.


@pytest.mark.parametrize(
    ("arguments", "schema"),
    [
        (["verify"], "verify/1"),
        (["promote-verdict", TASK_CLASS, "--tier", "bronze"], "verdict/1"),
        (["show", "latest"], "show/1"),
        (["show", "latest", "case-00"], "show/1"),
        (["export", "latest", "-o", "run.zip"], "export/1"),
        (["cache", "prune"], "cache/1"),
        (["verify", "--out", "nowhere"], "refusal/1"),
        (["show", "nothing"], "refusal/1"),
        (["cache", "prune", "--older-than", "nan"], "refusal/1"),
    ],
)
def test_every_command_prints_one_document_with_a_schema(
    desk: Desk, arguments: list[str], schema: str
) -> None:
    said = desk.ask(arguments[0], *arguments[1:], "--json")

    assert said.document["schema"] == f"codegenie.eval.{schema}"
    assert said.err == ""
    assert said.out.isascii()
