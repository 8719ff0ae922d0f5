"""The proof of an isolation class: what is refused, and that the refusal names what got through."""

import asyncio
import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from codegenie.eval.errors import HarnessFailure, IsolationNotProved, IsolationUnavailable
from codegenie.eval.isolation.canaries import planted
from codegenie.eval.isolation.launchers import Unconfined
from codegenie.eval.isolation.machine import this_machine
from codegenie.eval.isolation.outside_view import seen_from_outside
from codegenie.eval.isolation.proof import OF_CALLS, OF_ZYGOTES, strongest_proved
from codegenie.eval.isolation_proof import CONTROLLED_PROBES, OPEN_PROBES, REQUIRED_PROBES
from codegenie.eval.models import IsolationClass
from codegenie.eval.system.child_files import stream_file
from codegenie.eval.system.processes import ProcessEnd
from tests.support.proofs import (
    CALL_PROBE,
    CALLS_PROGRAM,
    CLASSES,
    DEEDS,
    OUTSIDE,
    PROBE_PROGRAM,
    TRIED_BY_CALLS,
    TRIED_FIRST,
    WELL,
    Claiming,
    Saying,
    all_well,
    blocked_answer,
    proved_with,
    without_file,
    without_listener,
)
from tests.support.sampling import sampled

REQUIRED = [
    (isolation_class, name)
    for isolation_class in CLASSES
    for name in sorted(REQUIRED_PROBES[isolation_class])
]
LISTENERS = ("tcp-connect", "udp-send", "unix-socket", "abstract-socket")
FILES = {
    "private-file": "private_file",
    "sibling-directory": "sibling_directory",
    "chmod-outside": "touched_file",
    "truncate-outside": "cut_file",
    "stat-outside": "run_directory",
}


def refusal(launcher: Saying | Claiming, directory: Path, **how: object) -> str:
    with pytest.raises(IsolationNotProved) as refused:
        asyncio.run(proved_with(launcher, directory, **how))  # type: ignore[arg-type]
    assert refused.value.hint
    # Whatever came of it, nothing of the proof lies there any more.
    assert list(directory.iterdir()) == []
    return refused.value.message


@pytest.mark.parametrize("isolation_class", CLASSES)
def test_a_probe_that_reaches_nothing_proves_its_class(
    isolation_class: IsolationClass, tmp_path: Path
) -> None:
    proof = asyncio.run(proved_with(Saying(isolation_class), tmp_path))

    assert (proof.isolation_class, proof.kernel) == (isolation_class, os.uname().release)
    assert proof.holds
    assert {probe.name for probe in proof.probes} >= REQUIRED_PROBES[isolation_class]
    assert not {probe.name for probe in proof.probes} & OPEN_PROBES
    assert list(tmp_path.iterdir()) == []


# That a proof without one of them does not hold is shown of all, on the record: unit/test_isolation_evidence.
SAMPLE = {("namespace", "fork"), ("namespace", "outside-seccomp"), ("landlock", "tcp-connect")}


@pytest.mark.parametrize("required", sampled(REQUIRED, SAMPLE.__contains__, "-".join))
def test_a_class_that_blocks_all_but_one_is_refused_by_the_name_of_that_one(
    required: tuple[IsolationClass, str], tmp_path: Path
) -> None:
    isolation_class, name = required
    answer, seen = blocked_answer(), all_well(0)
    if name in OUTSIDE:
        seen[name] = False
    else:
        answer[name] = True

    message = refusal(Saying(isolation_class, answer), tmp_path, look=lambda _pid: seen)

    assert message == f"isolation class {isolation_class!r} is not proved: {name!r} was not blocked"


@pytest.mark.parametrize("name", sorted(OF_ZYGOTES))
def test_what_only_a_copy_of_a_zygote_must_not_do_proves_nothing_if_it_can(name: str, tmp_path: Path) -> None:
    answer = {**blocked_answer(), name: True}
    fresh = Saying("landlock", answer)
    fresh.spawn = "cold"

    assert refusal(Saying("landlock", answer), tmp_path).endswith(f"{name!r} was not blocked")
    assert asyncio.run(proved_with(fresh, tmp_path)).holds


@pytest.mark.parametrize("name", ["fork", "outside-seccomp"])
def test_a_probe_that_was_not_tried_proves_nothing(name: str, tmp_path: Path) -> None:
    answer, seen = blocked_answer(), all_well(0)
    answer.pop(name, None)
    seen.pop(name, None)

    message = refusal(Saying("landlock", answer), tmp_path, look=lambda _pid: seen)

    assert message.endswith(f"{name!r} was not tried")


def test_what_only_namespaces_hide_may_be_open_in_landlock_and_is_written_down(tmp_path: Path) -> None:
    answer, seen = {**blocked_answer(), "stat-outside": True}, {**all_well(0), "disk-total": False}
    proof = asyncio.run(proved_with(Saying("landlock", answer), tmp_path, lambda _pid: seen))

    assert proof.holds
    assert {probe.name for probe in proof.probes if not probe.blocked} == {"stat-outside", "disk-total"}


@pytest.mark.parametrize("isolation_class", CLASSES)
def test_a_launcher_that_confines_nothing_proves_no_class(
    isolation_class: IsolationClass, tmp_path: Path
) -> None:
    message = refusal(Claiming(isolation_class, tmp_path), tmp_path, look=seen_from_outside)

    assert message.endswith("'absent-calls' was not blocked")


@pytest.mark.parametrize("name", LISTENERS)
def test_with_a_canary_s_listener_removed_the_class_is_refused(name: str, tmp_path: Path) -> None:
    message = refusal(Saying("namespace"), tmp_path, plant=without_listener(name))

    assert f"its control failed: {name!r} cannot be reached without confinement either" in message


@pytest.mark.parametrize(("name", "field"), FILES.items())
def test_with_a_canary_s_file_removed_the_class_is_refused(name: str, field: str, tmp_path: Path) -> None:
    message = refusal(Saying("namespace"), tmp_path, plant=without_file(field))

    assert f"its control failed: {name!r} cannot be reached without confinement either" in message


@pytest.mark.parametrize("name", DEEDS)
def test_what_a_probe_denies_is_known_by_whoever_looks_after_the_canary(name: str, tmp_path: Path) -> None:
    message = refusal(Saying("landlock", deed=DEEDS[name]), tmp_path)

    assert message.endswith(f"{name!r} was not blocked")


@pytest.mark.parametrize("name", sorted(OPEN_PROBES))
def test_a_class_in_which_a_rubric_cannot_work_is_refused(name: str, tmp_path: Path) -> None:
    message = refusal(Saying("landlock", {**blocked_answer(), name: False}), tmp_path)

    assert f"{name!r}, which every rubric needs" in message


ENDS = {
    "exit 98": ProcessEnd(exit_code=98),
    "signal SYS": ProcessEnd(signal="SYS"),
    "it left a process behind": ProcessEnd(exit_code=0, leaked=1),
}


@pytest.mark.parametrize("how", ENDS)
def test_a_probe_that_came_to_a_bad_end_proves_nothing(how: str, tmp_path: Path) -> None:
    message = refusal(Saying("landlock", end=ENDS[how]), tmp_path)

    assert message.endswith(f"the probe gave no answer ({how})")


@pytest.mark.parametrize("end", [ProcessEnd(timed_out=True), ProcessEnd(lost=True)], ids=["late", "lost"])
def test_a_probe_that_was_lost_or_is_late_lowers_no_class(end: ProcessEnd, tmp_path: Path) -> None:
    with pytest.raises(HarnessFailure, match="the probe of isolation class 'landlock'"):
        asyncio.run(proved_with(Saying("landlock", end=end), tmp_path))


@pytest.mark.parametrize("said", [b"", b"{", b"[]", b'{"fork": 0}', b'{"fork": null}', b"{} {}"])
def test_an_answer_that_is_no_list_of_results_proves_nothing(said: bytes, tmp_path: Path) -> None:
    message = refusal(Saying("landlock", said, end=WELL), tmp_path)

    assert "the probe gave no answer" in message


def test_a_probe_that_nobody_has_looked_at_proves_nothing(tmp_path: Path) -> None:
    message = refusal(Saying("landlock", seen=False), tmp_path)

    assert message.endswith("'outside-bounding-set-of-root' was not tried")


def test_without_confinement_the_probe_reaches_every_canary_and_what_was_left_open(tmp_path: Path) -> None:
    (tmp_path / "room").mkdir()
    (tmp_path / "room" / "rubric.py").write_bytes(PROBE_PROGRAM.read_bytes())
    left_open = os.open(tmp_path, os.O_RDONLY)
    with (
        planted(tmp_path) as canaries,
        stream_file(canaries.request + b"!") as stdin,
        stream_file() as stdout,
    ):
        command = [sys.executable, "-s", "-S", "-B", "rubric.py"]
        subprocess.run(
            command, cwd=tmp_path / "room", stdin=stdin, stdout=stdout, pass_fds=[left_open], check=True
        )
        reached = json.loads(os.pread(stdout, 1 << 16, 0)) | canaries.witnessed()
    os.close(left_open)

    excused = {"harness-memory", "process-vm-read"} if this_machine().hides_memory else set()
    wanted = OPEN_PROBES - OF_CALLS
    assert reached.keys() == TRIED_FIRST | wanted
    assert {name for name in CONTROLLED_PROBES | wanted if not reached[name]} == excused
    assert reached["descriptors"]


def ended(mode: str, directory: Path) -> subprocess.CompletedProcess[str]:
    """Run the second probe without confinement."""
    request = json.dumps({"mode": mode, "landlock_abi": this_machine().landlock_abi, "library": None})
    with stream_file(request.encode()) as stdin:
        command = [sys.executable, "-s", "-S", "-B", str(CALLS_PROGRAM)]
        return subprocess.run(
            command, cwd=directory, stdin=stdin, capture_output=True, text=True, check=False, timeout=60
        )


def test_without_confinement_every_call_gets_through_and_no_door_ends_a_process(tmp_path: Path) -> None:
    said = json.loads(ended("calls", tmp_path).stdout)

    assert said.keys() == TRIED_BY_CALLS | OF_CALLS
    # What many a machine denies to everybody is no canary; and a plain child has its own number anyway.
    not_reached = {name for name, reached in said.items() if not reached}
    assert not_reached <= {"keyring", "io-uring", "device-call", "thread-number"}
    assert list(tmp_path.iterdir()) == []
    assert ended("x32", tmp_path).returncode == 0


def test_every_call_that_is_on_no_list_gets_to_the_kernel_without_a_filter() -> None:
    refused = [
        name for name, given in CALL_PROBE["_UNLISTED"].items() if not CALL_PROBE["_through"](name, *given)
    ]

    assert refused == []


def test_of_ourselves_we_see_from_outside_that_nothing_confines_us() -> None:
    seen = seen_from_outside(os.getpid())

    assert seen.keys() == OUTSIDE
    assert not any(held for name, held in seen.items() if name.endswith("-namespace"))


def test_of_a_process_that_is_gone_we_see_nothing() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()

    assert seen_from_outside(ended.pid) == {}


def test_the_class_subprocess_needs_no_proof(tmp_path: Path) -> None:
    async def ask() -> tuple[IsolationClass, str, int | None, int]:
        launcher, proof = await strongest_proved("subprocess", "zygote", tmp_path)
        await launcher.close()
        return launcher.isolation_class, proof.kernel, proof.landlock_abi, len(proof.probes)

    machine = this_machine()
    assert asyncio.run(ask()) == ("subprocess", machine.kernel, machine.landlock_abi, 0)


def test_a_class_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(IsolationUnavailable, match="'microvm'"):
        asyncio.run(strongest_proved("microvm", "zygote", tmp_path))


LIMITS_PROGRAM = b"""
import json, resource
names = ("RLIMIT_AS", "RLIMIT_CPU", "RLIMIT_FSIZE", "RLIMIT_NOFILE", "RLIMIT_NPROC")
print(json.dumps({name: resource.getrlimit(getattr(resource, name)) for name in names}))
"""


def test_the_control_of_a_proof_has_no_other_limits_than_the_harness(tmp_path: Path) -> None:
    async def limits_in(launcher: Unconfined, stdin: int, stdout: int, stderr: int) -> ProcessEnd:
        launcher.divide(4)
        try:
            with launcher.room([("rubric.py", LIMITS_PROGRAM)]) as room:
                return await launcher.launch(room, (stdin, stdout, stderr), 20.0)
        finally:
            await launcher.close()

    with stream_file() as stdin, stream_file() as stdout, stream_file() as stderr:
        end = asyncio.run(limits_in(Unconfined(tmp_path), stdin, stdout, stderr))
        said = json.loads(os.pread(stdout, 4096, 0))

    assert end.exit_code == 0
    assert said == {name: list(resource.getrlimit(getattr(resource, name))) for name in said}
