"""What an agent, a plain child of the harness's user, can look into while a run lasts."""

import json
from pathlib import Path

import pytest

from codegenie.eval.isolation import hiding
from tests.support.benches import write_bench
from tests.support.commands import call, environment, run_argv
from tests.support.sampling import sampled

# Without any capability, as the program of an ordinary user, also where we are root. It can always open
# itself: that is the control.
SPY = """\
import ctypes, json, os


def parent(pid):
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
        return int(file.read().rpartition(")")[2].split()[1])


def solve(case):
    ctypes.CDLL(None).capset((ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)())
    supervisor = parent(os.getpid())
    opened = []
    for who, pid in (("itself", os.getpid()), ("supervisor", supervisor), ("harness", parent(supervisor))):
        for name in ("environ", "mem"):
            try:
                with open(f"/proc/{pid}/{name}", "rb") as file:
                    opened.append(f"{name} of {who}")
            except OSError:
                pass
    with open(SEEN, "w", encoding="utf-8") as file:
        json.dump(opened, file)
    return {"answer": f"it is {case.case_id}"}
"""


@pytest.mark.parametrize("isolation", sampled(["namespace", "landlock", "subprocess"], "namespace".__eq__))
def test_an_agent_looks_neither_into_the_harness_nor_into_what_started_it(
    isolation: str, tmp_path: Path
) -> None:
    seen = tmp_path / "seen.json"
    write_bench(tmp_path / "bench", cases=["one"])
    (tmp_path / "agent.py").write_text(SPY.replace("SEEN", repr(str(seen))), encoding="utf-8")
    done = call(run_argv("--isolation", isolation), tmp_path, environment(SERVICE_TOKEN="sk-live-4f7a91c0"))

    assert done.returncode == 0, done.stderr
    assert json.loads(seen.read_text(encoding="utf-8")) == ["environ of itself", "mem of itself"]


def dumpable() -> bool:
    """Say whether programs of our user may look into us, as the kernel has it."""
    from codegenie.eval.isolation.confinement import syscalls

    return syscalls.call("prctl", 3, 0, 0, 0, 0) == 1


def test_two_runs_in_one_process_hide_it_until_the_last_has_ended() -> None:
    states = [dumpable()]
    for step in (hiding.hide, hiding.hide, hiding.unhide, hiding.unhide):
        step()
        states.append(dumpable())
    assert states == [True, False, False, False, True]


def test_a_proof_beside_a_run_is_seen_for_as_long_as_it_takes() -> None:
    hiding.hide()
    try:
        with hiding.seen():
            during = dumpable()
        assert (during, dumpable()) == (True, False)
    finally:
        hiding.unhide()
    assert dumpable()
