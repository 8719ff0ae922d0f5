"""A log forged by somebody who knows the chain, so that every hash is right, is refused by its numbers."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from codegenie.eval.canonical import canonical_json
from codegenie.eval.errors import ChainTamperDetected
from codegenie.eval.isolation_proof import BoxProof, ProbeResult, required_of_box
from codegenie.eval.log.chain import Link, record_hash, record_name
from codegenie.eval.log.disk import HEAD
from codegenie.eval.models import BenchCase, IsolationClass, Summary, SutIdentity, SutNetwork
from codegenie.eval.planning import case_set_digest
from codegenie.eval.suts.identity import identity_digest
from tests.support.logs import Edit, build_log, forge, probes, read_records, verified, write_log

START, FINISH, RESUMED, RESUMED_FINISH, EXAM = 0, 1, 3, 4, 5


@pytest.fixture(scope="module")
def real_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_log(tmp_path_factory.mktemp("log"))


@pytest.fixture
def log(real_log: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(real_log, tmp_path / "runs"))


def refusal(log: Path) -> ChainTamperDetected:
    with pytest.raises(ChainTamperDetected) as caught:
        verified(log)
    return caught.value


def report(record: dict[str, Any]) -> dict[str, Any]:
    return record["body"]["report"]  # type: ignore[no-any-return]


def of_case(record: dict[str, Any], number: int) -> dict[str, Any]:
    return report(record)["per_case"][number][1]  # type: ignore[no-any-return]


def trial(record: dict[str, Any], number: int) -> dict[str, Any]:
    return record["body"]["trials"][number]  # type: ignore[no-any-return]


def setting(name: str, value: object) -> Edit:
    return lambda record: report(record).update({name: value})


REPORT_FORGERIES: dict[str, Edit] = {
    "mean_score": setting("mean_score", 0.312501),
    "score_stddev": setting("score_stddev", 0.3749),
    "lower_bound_95": setting("lower_bound_95", 0.01),
    "lower_bound_95_status": setting("lower_bound_95_status", "degenerate"),
    "certified_lower_95": setting("certified_lower_95", 0.9),
    "gaffke_lower_95": setting("gaffke_lower_95", 0.06),
    "gaffke_lower_95 gone": setting("gaffke_lower_95", None),
    "units": setting("units", 400),
    "units_passed": setting("units_passed", 4),
    "passed_count": setting("passed_count", 3),
    "scored_count": setting("scored_count", 4),
    "sut_fault_count": setting("sut_fault_count", 0),
    "bench_fault_count": setting("bench_fault_count", 1),
    "infrastructure_fault_count": setting("infrastructure_fault_count", 1),
    "total_cost_usd": setting("total_cost_usd", 0.0),
    "block_severity_failure_modes": setting("block_severity_failure_modes", ["answer.wrong"]),
    "complete": setting("complete", value=False),
    "task_class": setting("task_class", "another-class"),
    "harness_version": setting("harness_version", "9.9.9"),
    "sut_identity_digest": setting("sut_identity_digest", "a" * 64),
    "sut": lambda record: report(record)["sut"].update(spec="a better agent"),
    "rubric_digest": setting("rubric_digest", "a" * 64),
    "taxonomy_digest": setting("taxonomy_digest", "a" * 64),
    "case_set_digest": setting("case_set_digest", "a" * 64),
    "policy_digest": setting("policy_digest", "a" * 64),
    "sut_boundary": setting("sut_boundary", "process"),
    "started_at": setting("started_at", "2001-01-01T00:00:00Z"),
    "a start to come": setting("started_at", "2999-01-01T00:00:00Z"),
    "ended_at": setting("ended_at", "2999-01-01T00:00:00Z"),
    "an end before all time": setting("ended_at", "0001-01-01T00:00:00Z"),
    "isolation_class": setting("isolation_class", "namespace"),
    "selection": lambda record: report(record)["selection"].update(kind="partial"),
    "trials": setting("trials", 2),
    "run_id": setting("run_id", "another-run"),
    "provenance": setting("provenance", "imagined"),
    "per_case score": lambda record: of_case(record, 1).update(score=0.76),
    "per_case passed": lambda record: of_case(record, 1).update(passed=False),
    "per_case of a blocked case": lambda record: of_case(record, 0).update(passed=True, score=0.875),
    "per_case failure gone": lambda record: of_case(record, 0).update(failure_modes=[]),
    "per_case breakdown": lambda record: of_case(record, 1)["breakdown"].update(accuracy=0.75),
    "per_case duration": lambda record: of_case(record, 1).update(wall_clock_ms=0),
    "per_case order": lambda record: report(record)["per_case"].reverse(),
    "per_case missing": lambda record: report(record)["per_case"].pop(),
    "per_case first missing": lambda record: report(record)["per_case"].pop(0),
    "per_case twice": lambda record: report(record)["per_case"].append(report(record)["per_case"][3]),
    "per_case invented": lambda record: report(record)["per_case"].append(["zz", of_case(record, 1)]),
}


@pytest.mark.parametrize("what", REPORT_FORGERIES)
def test_a_forged_report_is_refused_though_every_hash_is_right(log: Path, what: str) -> None:
    forge(log, FINISH, REPORT_FORGERIES[what])
    found = refusal(log)
    assert found.where == record_name(FINISH)
    assert what not in Summary.model_fields or f"{what} is " in found.message


EVIDENCE_FORGERIES: dict[str, Edit] = {
    "the rubric's score": lambda record: trial(record, 1)["answer"].update(score=1.0),
    "the rubric's verdict": lambda record: trial(record, 1)["answer"].update(passed=False),
    "passed with score 0": lambda record: trial(record, 1)["answer"].update(score=0.0),
    "a block made a warning": lambda record: trial(record, 0)["answer"]["failure_modes"][0].update(
        severity="warn"
    ),
    "a code nobody declared": lambda record: trial(record, 0)["answer"]["failure_modes"][0].update(
        code="answer.fine"
    ),
    "a block left out": lambda record: trial(record, 0)["answer"].update(failure_modes=[]),
    "a key nobody declared": lambda record: trial(record, 1)["answer"]["breakdown"].update(charm=1.0),
    "a cost": lambda record: trial(record, 1).update(cost_usd=0.5),
    "a negative cost": lambda record: trial(record, 1).update(cost_usd=-0.5),
    "a duration": lambda record: trial(record, 1).update(wall_clock_ms=1),
    "a trial dropped": lambda record: record["body"]["trials"].pop(),
    "a trial repeated": lambda record: record["body"]["trials"].append(trial(record, 3)),
    "trials swapped": lambda record: record["body"]["trials"].reverse(),
    "another case": lambda record: trial(record, 3).update(case_id="another"),
    "another trial": lambda record: trial(record, 3).update(trial=1),
    "no trials at all": lambda record: record["body"].update(trials=[]),
    "an artefact that is not there under that name": lambda record: trial(record, 1)["artifacts"].update(
        output="A" * 64
    ),
}


@pytest.mark.parametrize("what", EVIDENCE_FORGERIES)
def test_forged_evidence_is_refused_though_every_hash_is_right(log: Path, what: str) -> None:
    forge(log, FINISH, EVIDENCE_FORGERIES[what])
    assert refusal(log).where == record_name(FINISH)


def weaker_case(record: dict[str, Any]) -> None:
    """Put another case into the plan, with the digests of the plan made to fit."""
    body = record["body"]
    body["cases"][0]["digest"] = "a" * 64
    cases = [BenchCase.model_validate_json(json.dumps(case)) for case in body["cases"]]
    body["case_set_digest"] = case_set_digest(cases)


def no_cases(record: dict[str, Any]) -> None:
    """Plan nothing, consistently: of no cases all pass."""
    body = record["body"]
    body |= {"cases": [], "case_set_digest": case_set_digest([])}
    body["selection"]["available_cases"] = 0


def boxed(boundary: str, network: str = "none", proof: dict[str, Any] | None = None) -> Edit:
    """Return the edit that says an agent of the command line ran in a box."""

    def edit(record: dict[str, Any]) -> None:
        sut = SutIdentity(spec="command:./agent.sh", digest="a" * 64)
        facts = {"sut": sut.model_dump(mode="json"), "sut_identity_digest": identity_digest(sut)}
        box = {} if proof is None else {"sut_isolation": proof}
        record["body"].update(facts, sut_boundary=boundary, sut_network=network, **box)

    return edit


def box_proof(
    isolation_class: IsolationClass, network: SutNetwork = "none", *, without: str | None = None
) -> dict[str, Any]:
    """Return a proof of the boxes of a class, as a record spells it."""
    names = sorted(required_of_box(isolation_class, network) - {without})
    probed = tuple(ProbeResult(name=name, blocked=True) for name in names)
    proof = BoxProof(
        isolation_class=isolation_class, network=network, kernel="6.18", landlock_abi=7, probes=probed
    )
    return proof.model_dump(mode="json")


START_FORGERIES: dict[str, tuple[Edit, int]] = {
    "a case digest": (lambda record: record["body"]["cases"][0].update(digest="a" * 64), START),
    "a case digest and that of the set": (weaker_case, FINISH),
    "a case left out": (lambda record: record["body"]["cases"].pop(), START),
    "no cases": (no_cases, START),
    "cases in another order": (lambda record: record["body"]["cases"].reverse(), START),
    "a case of another class": (lambda record: record["body"]["cases"][0].update(task_class="other"), START),
    "a partial selection as all": (
        lambda record: record["body"]["selection"].update(available_cases=5),
        START,
    ),
    "all as a partial selection": (lambda record: record["body"]["selection"].update(kind="partial"), FINISH),
    "another agent": (lambda record: record["body"]["sut"].update(version="2"), START),
    "a runner's code that warns": (
        lambda record: record["body"]["severities"].update({"sut.timeout": "warn"}),
        START,
    ),
    "a runner's code left out": (lambda record: record["body"]["severities"].pop("sut.timeout"), START),
    "a declared block that warns": (
        lambda record: record["body"]["severities"].update({"answer.wrong": "warn"}),
        FINISH,
    ),
    "a breakdown key left out": (lambda record: record["body"].update(breakdown_keys=["accuracy"]), FINISH),
    "more trials": (lambda record: record["body"].update(trials=2), FINISH),
    "trials without end": (lambda record: record["body"].update(trials=10**9), START),
    "no trials": (lambda record: record["body"].update(trials=0), START),
    "a stronger isolation": (
        lambda record: record["body"]["isolation"].update(
            isolation_class="namespace", probes=probes("namespace")
        ),
        FINISH,
    ),
    "a stronger isolation, one probe of which is missing": (
        lambda record: record["body"]["isolation"].update(
            isolation_class="namespace", probes=probes("namespace")[1:]
        ),
        START,
    ),
    "a stronger isolation with the probes of a weaker one": (
        lambda record: record["body"]["isolation"].update(
            isolation_class="namespace", probes=probes("landlock")
        ),
        START,
    ),
    "an isolation that nothing proves": (
        lambda record: record["body"]["isolation"].update(isolation_class="landlock"),
        START,
    ),
    "an isolation that its probe disproves": (
        lambda record: record["body"]["isolation"].update(
            isolation_class="namespace", probes=[*probes("namespace"), {"name": "fork", "blocked": False}]
        ),
        START,
    ),
    "our process as another": (lambda record: record["body"].update(sut_boundary="process"), START),
    "a box that nothing proves": (boxed("namespace"), START),
    "a network without a box": (boxed("process"), START),
    "a box with the proof of a weaker one": (boxed("namespace", proof=box_proof("landlock")), START),
    "a box with the proof of another network": (
        boxed("namespace", proof=box_proof("namespace", "host")),
        START,
    ),
    "a box whose thief found the answers": (
        boxed("namespace", proof=box_proof("namespace", without="secret-file")),
        START,
    ),
    "a spec without end": (lambda record: record["body"]["sut"].update(spec="a" * 2_001), START),
    "a run named for the newest": (lambda record: record.update(run_id="latest"), START),
    "a start of another year": (lambda record: record.update(recorded_at="2999-01-01T00:00:00Z"), FINISH),
    "a start on the last day": (lambda record: record.update(recorded_at="9999-12-31T23:59:59Z"), FINISH),
    "a policy": (lambda record: record["body"].update(policy_digest="a" * 64), FINISH),
    "a minimum below one": (
        lambda record: record["body"]["min_cases_for_promotion"].update(bronze=0),
        START,
    ),
    "a run id with a path in it": (lambda record: record.update(run_id="../../etc"), START),
    "a run id that is empty": (lambda record: record.update(run_id=""), START),
    "a time without a zone": (lambda record: record.update(recorded_at="2026-01-01T00:00:00"), START),
}


@pytest.mark.parametrize("what", START_FORGERIES)
def test_a_forged_start_is_refused_though_every_hash_is_right(log: Path, what: str) -> None:
    edit, named = START_FORGERIES[what]
    forge(log, START, edit)
    assert refusal(log).where == record_name(named)


def test_one_trial_of_two_cannot_be_changed(log: Path) -> None:
    forge(log, RESUMED_FINISH, lambda record: trial(record, 3)["answer"].update(score=0.25))
    assert refusal(log).where == record_name(RESUMED_FINISH)


def test_a_mean_over_trials_cannot_be_changed(log: Path) -> None:
    forge(log, RESUMED_FINISH, lambda record: of_case(record, 1)["trials"][1].update(score=1.0))
    assert refusal(log).where == record_name(RESUMED_FINISH)


def test_costs_that_overflow_are_refused_and_not_a_crash(log: Path) -> None:
    forge(
        log, RESUMED_FINISH, lambda record: [one.update(cost_usd=1e308) for one in record["body"]["trials"]]
    )
    assert refusal(log).where == record_name(RESUMED_FINISH)


@pytest.mark.parametrize(
    ("order", "named", "why"),
    [
        ([1], 0, "was not under way"),
        ([3], 0, "was not under way"),
        ([0, 0], 1, "starts twice"),
        ([0, 1, 1], 2, "was not under way"),
        ([0, 1, 0], 2, "starts twice"),
        ([2, 4, 3], 2, "was not under way"),
        ([0, 4], 1, "was not under way"),
    ],
)
def test_records_that_cannot_follow_each_other_are_refused(
    log: Path, order: list[int], named: int, why: str
) -> None:
    records = read_records(log)
    write_log(log, [records[index] for index in order])
    found = refusal(log)
    assert found.where == record_name(named)
    assert why in found.message


def test_a_record_that_gives_itself_another_number_is_refused(log: Path) -> None:
    path = log / record_name(7)
    forged = canonical_json({**json.loads(path.read_bytes()), "index": 6})
    path.write_bytes(forged)
    (log / HEAD).write_bytes(Link(8, record_hash(forged)).encode())
    found = refusal(log)
    assert found.where == record_name(7)
    assert "its index is 6" in found.message


def test_runs_may_interleave(log: Path) -> None:
    records = read_records(log)
    write_log(log, [records[index] for index in (2, 0, 6, 5, 3, 1, 7, 3, 4)])
    assert len(verified(log).hashes) == 9


def test_a_run_cannot_be_resumed_with_more_than_was_planned(log: Path) -> None:
    forge(log, RESUMED, lambda record: record["body"].update(finished_trials=9))
    assert refusal(log).where == record_name(RESUMED)
    forge(log, RESUMED, lambda record: record["body"].update(finished_trials=8))
    verified(log)


@pytest.mark.parametrize("algorithm", ["sha256", "none"])
def test_a_record_cannot_choose_its_hash(log: Path, algorithm: str) -> None:
    forge(log, EXAM, lambda record: record.update(algorithm=algorithm))
    assert refusal(log).where == record_name(EXAM)


def test_a_start_whose_box_is_proved_is_not_what_is_refused(log: Path) -> None:
    forge(log, START, boxed("namespace", proof=box_proof("namespace")))
    # The finish still names the other agent, so it is the finish that does not fit.
    assert refusal(log).where == record_name(FINISH)
