"""The classes of isolation on this machine: each is proved, or the test says which is not and why."""

import asyncio
import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from codegenie.eval.errors import IsolationUnavailable
from codegenie.eval.isolation.machine import this_machine
from codegenie.eval.isolation.proof import strongest_proved
from codegenie.eval.isolation_proof import IsolationProof
from codegenie.eval.models import Spawn
from tests.support.benches import TASK_CLASS, write_bench
from tests.support.commands import answered, call, eval_argv

RUN = eval_argv("run", TASK_CLASS, "--sut", "null", "--quiet", "--json")
BY_NAME = ["--isolation", "subprocess"]
WITHOUT_NAMESPACES = [sys.executable, str(Path(__file__).parents[1] / "support" / "without_namespaces.py")]


def proof_of(asked_for: str, spawn: Spawn, directory: Path) -> IsolationProof:
    async def ask() -> IsolationProof:
        launcher, proof = await strongest_proved(asked_for, spawn, directory)
        await launcher.close()
        assert launcher.isolation_class == proof.isolation_class
        return proof

    try:
        return asyncio.run(ask())
    except IsolationUnavailable as error:
        pytest.fail(f"not proved here: {asked_for} by {spawn}: {error.message}")


@pytest.mark.parametrize("spawn", ["zygote", "cold"])
@pytest.mark.parametrize("asked_for", ["namespace", "landlock"])
def test_a_class_is_proved_through_its_real_launcher(asked_for: str, spawn: Spawn, tmp_path: Path) -> None:
    proof = proof_of(asked_for, spawn, tmp_path)

    assert (proof.isolation_class, proof.unproved) == (asked_for, ())
    assert (proof.kernel, proof.landlock_abi) == (os.uname().release, this_machine().landlock_abi)


def test_auto_takes_the_strongest_class(tmp_path: Path) -> None:
    assert proof_of("auto", "zygote", tmp_path).isolation_class == "namespace"


def test_in_landlock_only_what_its_page_says_is_open(tmp_path: Path) -> None:
    proof = proof_of("landlock", "zygote", tmp_path)
    seen = {
        probe.name for probe in proof.probes if not probe.blocked and not probe.name.startswith("outside-")
    }

    assert seen | {"disk-total", "disk-inodes"} == {
        "disk-inodes",
        "disk-total",
        "hostname",
        "stat-outside",
        "stat-system",
    }


def test_where_namespaces_are_denied_landlock_is_proved_and_the_remedy_is_told(tmp_path: Path) -> None:
    done = call([*WITHOUT_NAMESPACES, *eval_argv("doctor", "--json")], tmp_path)
    said = answered(done)
    namespace, landlock, subprocess = said["classes"]

    assert (done.returncode, said["strongest"]) == (0, "landlock"), json.dumps(said["classes"])
    assert not namespace["proved"]
    assert "Operation not permitted" in namespace["why_not"]
    assert namespace["remedies"]
    assert landlock["proved"]
    assert subprocess["proved"]


def test_where_landlock_is_denied_too_nothing_is_proved_and_auto_takes_nothing(tmp_path: Path) -> None:
    said = answered(call([*WITHOUT_NAMESPACES, "--nor-landlock", *eval_argv("doctor", "--json")], tmp_path))

    assert [entry["proved"] for entry in said["classes"]] == [False, False, True]
    assert (said["strongest"], said["probes"], said["machine"]["landlock_abi"]) == (None, [], None)
    assert "landlock: version 0" in said["classes"][1]["why_not"]


def test_an_isolation_that_cannot_be_proved_is_refused_and_never_lowered(tmp_path: Path) -> None:
    write_bench(tmp_path / "bench")
    run = eval_argv("run", TASK_CLASS, "--sut", "null", "--isolation", "namespace", "--quiet", "--json")
    done = call([*WITHOUT_NAMESPACES, "--nor-landlock", *run], tmp_path)

    assert done.returncode == 4
    assert answered(done)["error"]["type"] == "IsolationUnavailable"
    assert not (tmp_path / ".codegenie" / "eval" / "runs").exists()


def test_a_run_says_why_it_took_no_stronger_class(tmp_path: Path) -> None:
    write_bench(tmp_path / "bench")
    said = answered(call([*WITHOUT_NAMESPACES, *RUN], tmp_path))

    assert said["report"]["isolation_class"] == "landlock"
    assert [note.split("'")[1] for note in said["notes"]] == ["namespace"]


def test_where_nothing_confines_auto_runs_nothing_and_names_the_flag_that_accepts_it(tmp_path: Path) -> None:
    write_bench(tmp_path / "bench")
    done = call([*WITHOUT_NAMESPACES, "--nor-landlock", *RUN], tmp_path)
    error = answered(done)["error"]
    accepted = answered(call([*WITHOUT_NAMESPACES, "--nor-landlock", *RUN, *BY_NAME], tmp_path))

    assert (done.returncode, error["type"]) == (4, "IsolationUnavailable")
    assert "'namespace' cannot be set up" in error["message"]
    assert "'landlock' cannot be set up" in error["message"]
    assert " ".join(BY_NAME) in error["hint"]
    assert accepted["report"]["isolation_class"] == "subprocess"


def test_on_another_system_auto_takes_subprocess_and_says_why(tmp_path: Path) -> None:
    notes: list[str] = []
    elsewhere = replace(this_machine(), system="Darwin")

    async def ask() -> str:
        launcher, _ = await strongest_proved("auto", "zygote", tmp_path, notes.append, elsewhere)
        await launcher.close()
        return launcher.isolation_class

    assert asyncio.run(ask()) == "subprocess"
    assert [note.partition(": ")[2] for note in notes] == ["Darwin has neither namespaces nor Landlock"] * 2


def test_a_machine_whose_calls_are_not_known_has_no_class_that_confines(tmp_path: Path) -> None:
    foreign = replace(this_machine(), architecture="riscv64")
    with pytest.raises(IsolationUnavailable, match="codegenie does not know the system calls of riscv64"):
        asyncio.run(strongest_proved("auto", "zygote", tmp_path, machine=foreign))


def test_a_run_without_confinement_is_warned_about_in_the_first_lines_of_its_report(tmp_path: Path) -> None:
    write_bench(tmp_path / "bench")
    run = eval_argv("run", TASK_CLASS, "--sut", "null", "--quiet")

    assert call([*run, *BY_NAME], tmp_path).stdout.splitlines()[1].startswith("WARNING ")
    assert "WARNING" not in call(run, tmp_path).stdout
