"""What is reused between runs, and what is not: one test for every ingredient of each key."""

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from codegenie.eval.canonical import canonical_json
from codegenie.eval.execution_ports import Judged
from codegenie.eval.models import SutIdentity
from tests.support.benches import TASK_CLASS, write_bench
from tests.support.commands import asked, call, run_argv, write_agent
from tests.support.logs import read_records, record_run, stopped_run, verified
from tests.support.stores import Bench, FlakySut, NotingSut, memory_of


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    write_bench(tmp_path / "bench")
    made = Bench(tmp_path)
    assert made.run() == ["one: no output is stored yet", "one: no score is stored yet"]
    assert made.sut.asked == ["one#0"]
    assert made.reused() == ["none"]
    return made


# --- nothing changed -------------------------------------------------------------------------------


def test_unchanged_everything_is_reused_and_still_written_to_the_log(bench: Bench) -> None:
    first = bench.recorded.report
    assert bench.run() == []
    assert bench.sut.asked == ["one#0"]
    assert bench.reused() == ["both"]
    assert [record["kind"] for record in read_records(bench.log)] == ["run.started", "run.finished"] * 2
    assert bench.recorded.report.per_case[0][1].score == first.per_case[0][1].score == 1.0
    assert bench.recorded.report.total_cost_usd == first.total_cost_usd == 0.25
    assert bench.recorded.notes == ()
    verified(bench.log)


def test_an_output_and_its_log_come_back_byte_for_byte(bench: Bench) -> None:
    bench.run()
    first, second = (read_records(bench.log)[index]["body"]["trials"][0]["artifacts"] for index in (1, 3))
    assert {"output", "sut_log", "rubric_stdout"} == first.keys()
    assert second == {name: first[name] for name in ("output", "sut_log")}


def test_a_failure_of_another_run_is_asked_again_without_a_policy(tmp_path: Path) -> None:
    """It may have been the provider's, and nothing says so."""
    write_bench(tmp_path / "bench")
    bench = Bench(tmp_path, FlakySut())
    bench.run()
    first = bench.recorded.report
    explained = bench.run()
    assert (first.sut_fault_count, bench.recorded.report.passed_count) == (1, 1)
    assert explained[0] == f"one: output is measured again, since run {first.run_id} had none"
    assert (bench.reused(), len(bench.sut.asked)) == (["none"], 2)


def test_only_what_was_measured_waits_for_the_disk(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    syncs: list[int] = []
    fdatasync = os.fdatasync

    def counted(descriptor: int) -> None:
        syncs.append(descriptor)
        fdatasync(descriptor)

    monkeypatch.setattr(os, "fdatasync", counted)
    header = 1
    asked_and_measured = 2
    for options, expected in (
        ({}, 0),
        ({"fresh": True}, asked_and_measured),
        ({"timeout_seconds": 5.0}, asked_and_measured),
    ):
        syncs.clear()
        bench.run(**options)
        assert len(syncs) == header + expected


@pytest.mark.parametrize("store", ["kept", "gone"])
def test_a_run_that_dies_after_reused_trials_loses_nothing(tmp_path: Path, store: str) -> None:
    """What came out of the store as a whole is in no journal: it is read there again, or measured."""
    root = write_bench(tmp_path / "bench", cases=["one", "three", "two"])
    log, cache = tmp_path / "runs", tmp_path / "cache"
    first = record_run(root, log, NotingSut(), cache_dir=cache)
    stopped_run(root, log, 2, sut=NotingSut(), cache_dir=cache)
    (journal,) = (log / "journal").iterdir()
    assert len(journal.read_bytes().splitlines()) == 1, "the header alone"
    if store == "gone":
        shutil.rmtree(cache)
    sut = NotingSut()
    resumed = record_run(root, log, sut, cache_dir=cache)
    kinds = [record["kind"] for record in read_records(log)[2:]]
    assert kinds == ["run.started", "run.resumed", "run.finished"]
    assert resumed.report.run_id == journal.name
    assert [score.score for _, score in resumed.report.per_case] == [
        score.score for _, score in first.report.per_case
    ]
    again = [trial["reused"] for trial in read_records(log)[-1]["body"]["trials"]]
    assert again == (["both"] * 3 if store == "kept" else ["none"] * 3)
    assert sorted(sut.asked) == ([] if store == "kept" else ["one#0", "three#0", "two#0"])
    verified(log)


def test_without_a_store_nothing_is_reused(bench: Bench) -> None:
    assert bench.run(cache_dir=None) == []
    assert bench.sut.asked == ["one#0", "one#0"]
    assert bench.reused() == ["none"]


def test_a_new_measurement_takes_nothing_and_is_kept(bench: Bench) -> None:
    bench.sut.answer = "it is none"
    assert bench.run(fresh=True) == []
    assert bench.sut.asked == ["one#0", "one#0"]
    assert bench.reused() == ["none"]
    assert bench.run() == []
    assert bench.reused() == ["both"]
    assert bench.recorded.report.passed_count == 0


def test_another_directory_for_the_log_is_no_reason_to_measure_again(bench: Bench) -> None:
    bench.directory.joinpath("runs").rename(bench.directory / "moved")
    assert bench.run() == []
    assert bench.sut.asked == ["one#0"]


# --- the ingredients of an output ------------------------------------------------------------------


def test_another_input_is_another_output(bench: Bench) -> None:
    (bench.case / "input" / "question.txt").write_text("what is it really?\n")
    bench.digest()
    assert bench.run()[0] == "one: output is measured again, since input changed"
    assert bench.sut.asked == ["one#0", "one#0"]


def test_another_version_of_the_agent_is_another_output(bench: Bench) -> None:
    bench.sut.identity = SutIdentity(spec="command:noting", version="2")
    assert bench.run() == ["one: output is measured again, since sut_identity changed"]
    assert bench.sut.asked == ["one#0", "one#0"]
    assert bench.reused() == ["score"]


@pytest.mark.parametrize("change", [{"spec": "other"}, {"digest": "a" * 64}])
def test_every_part_of_the_identity_counts(bench: Bench, change: dict[str, str]) -> None:
    bench.sut.identity = bench.sut.identity.model_copy(update=change)
    assert bench.run() == ["one: output is measured again, since sut_identity changed"]


def test_another_deadline_is_another_output(bench: Bench) -> None:
    assert bench.run(timeout_seconds=5.0) == ["one: output is measured again, since sut_seconds changed"]
    assert bench.run(timeout_seconds=5.0) == []
    # The case's own deadline is lower than this, so nothing changes.
    assert bench.run(timeout_seconds=90_000.0) == []
    assert bench.sut.asked == ["one#0", "one#0"]


def test_another_trial_is_another_output(bench: Bench) -> None:
    assert bench.run(trials=2) == ["one: output is measured again, since trial changed"]
    assert bench.sut.asked == ["one#0", "one#1"]
    assert bench.run(trials=2) == []
    assert bench.sut.asked == ["one#0", "one#1"]


def test_an_agent_without_a_version_is_always_asked_again_but_its_output_is_not_judged_again(
    bench: Bench,
) -> None:
    bench.sut.identity = SutIdentity(spec="command:noting")
    for times in (2, 3):
        assert bench.run() == ["one: output is measured again, since the agent has no version"]
        assert bench.sut.asked == ["one#0"] * times
        assert bench.reused() == ["score"]


def test_the_harness_s_own_agents_need_no_version(bench: Bench) -> None:
    bench.sut.identity = SutIdentity(spec="null")
    bench.sut.boundary = "harness"
    bench.run()
    bench.run()
    assert bench.sut.asked == ["one#0", "one#0"]


# --- the ingredients of a score --------------------------------------------------------------------


def test_another_output_is_another_score(bench: Bench) -> None:
    bench.sut.identity = SutIdentity(spec="command:noting")
    bench.sut.answer = "it is none"
    assert bench.run()[1:] == ["one: score is measured again, since output changed"]
    assert bench.recorded.report.passed_count == 0


def test_another_expectation_is_another_score_of_the_same_output(bench: Bench) -> None:
    (bench.case / "expected" / "answer.txt").write_text("it is none")
    bench.digest()
    assert bench.run() == ["one: score is measured again, since case changed"]
    assert bench.sut.asked == ["one#0"], "the agent is not paid twice"
    assert bench.reused() == ["output"]
    assert bench.recorded.report.passed_count == 0


def test_another_rubric_is_another_score_of_the_same_output(bench: Bench) -> None:
    rubric = bench.directory / "bench" / TASK_CLASS / "rubric.py"
    rubric.write_text(rubric.read_text() + "# said otherwise\n")
    assert bench.run() == ["one: score is measured again, since rubric changed"]
    assert bench.reused() == ["output"]


def test_another_module_of_the_rubric_is_another_score(bench: Bench) -> None:
    (bench.directory / "bench" / TASK_CLASS / "rubric_lib").mkdir()
    (bench.directory / "bench" / TASK_CLASS / "rubric_lib" / "more.py").write_text("x = 1\n")
    assert bench.run() == ["one: score is measured again, since rubric changed"]


@pytest.mark.parametrize("file", ["failure_modes.yaml", "breakdown_keys.py"])
def test_another_taxonomy_is_another_score(bench: Bench, file: str) -> None:
    path = bench.directory / "bench" / TASK_CLASS / file
    path.write_text(path.read_text().replace("made for a test", "made for one").replace("accuracy", "truth"))
    assert bench.run() == ["one: score is measured again, since taxonomy changed"]
    assert bench.reused() == ["output"]


def test_another_version_of_the_harness_is_another_score(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("codegenie.eval.runner.__version__", "9.9.9")
    assert bench.run() == ["one: score is measured again, since harness_version changed"]
    assert bench.reused() == ["output"]


def test_another_interpreter_is_another_score(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.python_version", lambda: "3.99.0")
    assert bench.run() == ["one: score is measured again, since python changed"]


def test_another_isolation_class_is_another_score(bench: Bench) -> None:
    """Only one class exists so far, so the memory itself is asked."""
    memory, case = memory_of(bench)
    output = Judged(canonical_json({"answer": "it is one"}))
    assert memory.answer(case, output) is not None
    explained: list[str] = []
    stronger = memory.start.isolation.model_copy(update={"isolation_class": "namespace"})
    elsewhere = memory.start.model_copy(update={"isolation": stronger})
    weaker = replace(memory, start=elsewhere, explain=explained.append)
    assert weaker.answer(case, output) is None
    assert explained == ["one: score is measured again, since isolation_class changed"]


# --- the command line ------------------------------------------------------------------------------


def test_the_command_reuses_by_version_and_explains_with_v(tmp_path: Path) -> None:
    write_bench(tmp_path / "bench")
    calls = write_agent(tmp_path)
    said = ""
    for version, times in (("1", 1), ("1", 1), ("2", 2)):
        done = call(run_argv("--sut-version", version, "-v"), tmp_path)
        assert done.returncode == 0
        assert asked(calls) == ["one"] * times
        said = done.stderr
    assert "one: output is measured again, since sut_identity changed" in said
    for times in (3, 4):
        assert call(run_argv(), tmp_path).returncode == 0
        assert asked(calls) == ["one"] * times
    assert call(run_argv("--sut-version", "2", "--no-cache"), tmp_path).returncode == 0
    assert asked(calls) == ["one"] * 5


@pytest.mark.parametrize("version", ["1", None])
@pytest.mark.parametrize("where", ["artefact", "store"])
def test_an_output_that_a_dead_run_produced_counts_as_measured_when_it_is_resumed(
    tmp_path: Path, version: str | None, where: str
) -> None:
    """The agent was asked in this very run; only the rubric had not answered yet."""
    identity = SutIdentity(spec="command:noting", version=version)
    root = write_bench(tmp_path / "bench", cases=["one", "two"])
    stopped_run(root, tmp_path / "runs", 1, sut=NotingSut(identity), cache_dir=tmp_path / "cache")
    run_id = read_records(tmp_path / "runs")[0]["run_id"]
    journal = tmp_path / "runs" / "journal" / run_id
    until_it_was_judged = journal.read_bytes().splitlines(keepends=True)[:3]
    journal.write_bytes(b"".join(until_it_was_judged))
    if where == "artefact":
        shutil.rmtree(tmp_path / "cache")
    else:
        shutil.rmtree(tmp_path / "runs" / "artifacts")
    sut = NotingSut(identity)
    record_run(root, tmp_path / "runs", sut, cache_dir=tmp_path / "cache", concurrency=1)
    finish = read_records(tmp_path / "runs")[-1]
    assert finish["run_id"] == run_id
    assert sut.asked == ["two#0"]
    judged_before = "none" if where == "artefact" else "score"
    assert [trial["reused"] for trial in finish["body"]["trials"]] == [judged_before, "none"]
    assert [trial.get("interrupted") for trial in finish["body"]["trials"]] == [None, None]
