"""`codegenie eval tiers`: the policy in force, and a first one for whoever has none."""

from pathlib import Path

from codegenie.eval.gate.policy import FIRST_POLICY
from tests.support.commands import answered, call, eval_argv
from tests.support.working_directory import Desk


def test_a_first_policy_is_written_shown_and_enough_for_a_verdict(fresh_desk: Desk) -> None:
    (fresh_desk.directory / "trust-tiers.yaml").unlink()
    before = fresh_desk.ask("promote-verdict", "built-class", "--tier", "bronze")
    assert (before.code, "`codegenie eval tiers --write` makes one" in before.err) == (2, True)

    written = fresh_desk.ask("tiers", "--write")

    assert written.code == 0
    assert written.out.splitlines()[:3] == [
        "trust-tiers.yaml is written",
        "bronze           certified 0.5 · isolation subprocess · agent in process · 0 held-out cases",
        "silver           certified 0.8 · isolation landlock · agent in landlock · 5 held-out cases",
    ]
    assert fresh_desk.run("right").code == 0
    assert fresh_desk.ask("promote-verdict", "built-class", "--tier", "bronze").code == 1


def test_a_policy_that_is_there_is_never_written_over(tmp_path: Path) -> None:
    policy = tmp_path / "trust-tiers.yaml"
    policy.write_text(
        "thresholds: {bronze: 0.7}\nminimum_held_out: 1\nmaximum_age_days: 1\n", encoding="utf-8"
    )
    before = policy.read_bytes()

    refused = call(eval_argv("tiers", "--write"), tmp_path)
    shown = call(eval_argv("tiers"), tmp_path)

    assert (refused.returncode, "it was not changed" in refused.stderr) == (2, True)
    assert policy.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["trust-tiers.yaml"]
    assert shown.stdout.splitlines()[:2] == [
        "bronze           certified 0.7 · isolation subprocess · agent in process · 1 held-out case",
        "evidence         at most 1 day old · alpha 0.05",
    ]


def test_the_policy_is_one_document_and_a_missing_one_is_refused(tmp_path: Path) -> None:
    missing = call(eval_argv("tiers", "--json"), tmp_path)
    (tmp_path / "mine.yaml").write_text(f"{FIRST_POLICY}", encoding="utf-8")
    document = answered(call(eval_argv("tiers", "--tiers", "mine.yaml", "--json"), tmp_path))

    assert (missing.returncode, answered(missing)["error"]["type"]) == (2, "TierConfigInvalid")
    assert document["schema"] == "codegenie.eval.tiers/1"
    assert (document["file"], document["written"]) == ("mine.yaml", False)
    assert document["thresholds"] == {"bronze": 0.5, "silver": 0.8, "gold": 0.9}


def test_a_policy_that_cannot_be_written_is_the_harnesss_failure(tmp_path: Path) -> None:
    done = call(eval_argv("tiers", "--write", "--tiers", "no/such/place.yaml"), tmp_path)

    assert (done.returncode, "cannot write the policy" in done.stderr) == (4, True)
