"""Proof of an isolation class at start: a probe is started like a rubric and must reach nothing (ADR-0021).

The same probe without confinement must reach every canary, or "blocked" would prove nothing. The harness also
inspects the confined probe from outside, while it waits.
"""

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from codegenie.eval.decoding import decode_json
from codegenie.eval.errors import DecodingRefused, HarnessFailure, IsolationNotProved, IsolationUnavailable
from codegenie.eval.isolation.call_trials import tried_calls
from codegenie.eval.isolation.canaries import Canaries, planted
from codegenie.eval.isolation.launchers import Launcher, Unconfined, open_launcher
from codegenie.eval.isolation.machine import Machine, lacks, proc_is_mounted, this_machine
from codegenie.eval.isolation.outside_view import seen_from_outside
from codegenie.eval.isolation_proof import (
    CONTROLLED_PROBES,
    OPEN_PROBES,
    PROBE_LIST,
    IsolationProof,
    ProbeResult,
)
from codegenie.eval.models import IsolationClass, Spawn
from codegenie.eval.sanitising import one_line
from codegenie.eval.system.child_files import read_head, read_tail, stream_file
from codegenie.eval.system.processes import ProcessEnd

STRONGEST_FIRST: tuple[IsolationClass, ...] = ("namespace", "landlock", "subprocess")

OF_ZYGOTES = frozenset({"exec-interpreter", "far-mapping"})
"""Probes that must fail in a copy of a zygote only. No record lists them, because a record does not say how
its copies were made."""

OF_CALLS = frozenset({"free-calls"})
"""Names in the answer of the second probe, which is not run for the control."""

_MEMORY_PROBES = frozenset({"harness-memory", "process-vm-read"})

_PROBE_PROGRAM = Path(__file__).with_name("probe_program.py")
# The probe takes milliseconds, and much longer under load. Only a hang takes as long as this.
_SECONDS = 30.0
_ANSWER_BYTES = 64 * 1024
_COMPLAINT_BYTES = 4 * 1024
_POLL_SECONDS = 0.001
_TURNS = 500
_HINT = "`codegenie eval doctor` says what is missing on this machine"
_NO_LOWER = "correct that, and run again: a weaker class is used only if --isolation names it"
_ACCEPTS = "`codegenie eval doctor` says what is missing; --isolation subprocess runs rubrics unconfined"
_LOOPBACK = "check that the loopback interface is up, `ip link set lo up`, and that no program floods it"
_REMEDIES = {
    "tcp-connect": _LOOPBACK,
    "udp-send": _LOOPBACK,
    "large-allocation": "the shell limits memory to less than a rubric may have: `ulimit -v unlimited`",
    "large-file": "the shell limits files to less than a rubric may write: `ulimit -f unlimited`",
}
"""What to do about the usual reasons why a control does not reach its canary."""
_AGAIN = "the machine is busy, or another program ends our processes: run again"

Outside = Callable[[int], Mapping[str, bool]]
"""Inspects a process from outside, and returns for each check whether it holds."""

Planter = Callable[[Path], AbstractContextManager[Canaries]]
"""Plants canaries for one probe below the run directory."""


@dataclass(frozen=True, slots=True)
class _Probed:
    """What one probe reached by its own report and by that of a witness, and the checks from outside."""

    said: Mapping[str, bool]
    witnessed: Mapping[str, bool]
    outside: Mapping[str, bool]

    @property
    def surely_reached(self) -> dict[str, bool]:
        """What was reached for certain. A witness outweighs the probe, which cannot know what arrived."""
        return {**self.said, **self.witnessed}

    @property
    def perhaps_reached(self) -> dict[str, bool]:
        """What was reached by either report."""
        return {name: self.said.get(name, False) or self.witnessed.get(name, False) for name in self.said}


def _ignore(_reason: str) -> None:
    """Tell the reason to no caller."""


async def strongest_proved(
    asked_for: str,
    spawn: Spawn,
    run_directory: Path,
    told: Callable[[str], object] = _ignore,
    machine: Machine | None = None,
) -> tuple[Launcher, IsolationProof]:
    """Return the launcher of the strongest class that was proved, or of the one that was asked for.

    `told` gets the reason why each stronger class is not available. Only a feature that the kernel lacks
    leads to a weaker class. A failed or disturbed proof raises IsolationNotProved or HarnessFailure, or
    another user could choose the class of this run. Raises IsolationUnavailable if no class can be taken.
    """
    if asked_for != "auto":
        return await proved(_class_named(asked_for), spawn, run_directory, machine)
    reasons = []
    for isolation_class in taken_by_auto(machine or this_machine()):
        try:
            return await proved(isolation_class, spawn, run_directory, machine)
        except IsolationUnavailable as refusal:
            told(refusal.message)
            reasons.append(refusal.message)
    raise IsolationUnavailable(f"this machine cannot confine rubrics: {'; '.join(reasons)}", hint=_ACCEPTS)


def taken_by_auto(machine: Machine) -> tuple[IsolationClass, ...]:
    """Return the classes that `auto` may take, strongest first.

    Where confinement exists, only the user can decide to run without it, and has to name that class.
    """
    return tuple(each for each in STRONGEST_FIRST if each != "subprocess" or machine.system != "Linux")


async def proved(
    isolation_class: IsolationClass, spawn: Spawn, run_directory: Path, machine: Machine | None = None
) -> tuple[Launcher, IsolationProof]:
    """Return the launcher of a class with its proof.

    Raises IsolationUnavailable if the kernel lacks the class, and IsolationNotProved if the proof fails.
    """
    if isolation_class == "subprocess":
        return await open_launcher(isolation_class, spawn, run_directory), _proof(isolation_class, {})
    problem = lacks(machine or this_machine())
    if problem:
        raise IsolationUnavailable(
            f"isolation class {isolation_class!r} cannot be set up: {problem}", hint=_HINT
        )
    if not proc_is_mounted():
        raise _unproved(isolation_class, "/proc is not mounted", "`mount -t proc proc /proc`, and run again")
    try:
        return await _set_up_and_proved(isolation_class, spawn, run_directory)
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        raise _unproved(isolation_class, f"the proof was disturbed: {error.strerror}{where}") from None


async def _set_up_and_proved(
    isolation_class: IsolationClass, spawn: Spawn, run_directory: Path
) -> tuple[Launcher, IsolationProof]:
    control = Unconfined(run_directory)
    async with AsyncExitStack() as held:
        held.push_async_callback(control.close)
        # The control comes first: its supervisor starts at the same time as the launcher.
        await control.open()
        launcher = await open_launcher(isolation_class, spawn, run_directory)
        async with AsyncExitStack() as unproved:
            unproved.push_async_callback(launcher.close)
            proof = await prove(launcher, control, run_directory)
            unproved.pop_all()
    return launcher, proof


async def prove(
    launcher: Launcher,
    control: Launcher,
    run_directory: Path,
    look: Outside = seen_from_outside,
    plant: Planter = planted,
) -> IsolationProof:
    """Run the probe by the launcher of a class and by one that confines nothing, and compare."""
    isolation_class = launcher.isolation_class
    with plant(run_directory) as for_control, plant(run_directory) as for_class:
        both = await asyncio.gather(
            _probed(control, for_control, None),
            _of_the_class(launcher, for_class, look),
            return_exceptions=True,
        )
    free, confined = map(_raised, both)
    _check_control(isolation_class, free.surely_reached)
    _check_open(isolation_class, confined.said)
    reached = confined.perhaps_reached
    tried = {name: not reached[name] for name in reached.keys() - OPEN_PROBES}
    proof = _proof(isolation_class, tried | dict(confined.outside))
    # A fresh interpreter is started by the call itself, and its addresses are not known before.
    for name in sorted(OF_ZYGOTES) if launcher.spawn == "zygote" else ():
        if reached.get(name):
            raise _unproved(isolation_class, f"{name!r} was not blocked")
    for name in proof.unproved:
        known = name in tried or name in confined.outside
        raise _unproved(isolation_class, f"{name!r} {'was not blocked' if known else 'was not tried'}")
    return proof


async def _of_the_class(launcher: Launcher, canaries: Canaries, look: Outside) -> _Probed:
    """Run both probes by the launcher of a class, one after the other, as cases are run."""
    calls = await tried_calls(launcher, this_machine())
    probed = await _probed(launcher, canaries, look)
    return _Probed({**probed.said, **calls}, probed.witnessed, probed.outside)


def _class_named(name: str) -> IsolationClass:
    for isolation_class in STRONGEST_FIRST:
        if isolation_class == name:
            return isolation_class
    raise IsolationUnavailable(f"there is no isolation class {name!r}", hint=_HINT)


def _proof(isolation_class: IsolationClass, blocked: Mapping[str, bool]) -> IsolationProof:
    machine = this_machine()
    return IsolationProof(
        isolation_class=isolation_class,
        kernel=machine.kernel,
        landlock_abi=machine.landlock_abi,
        probe_list=PROBE_LIST,
        probes=tuple(ProbeResult(name=name, blocked=held) for name, held in sorted(blocked.items())),
    )


def _raised(ended: _Probed | BaseException) -> _Probed:
    if isinstance(ended, BaseException):
        raise ended
    return ended


def _unproved(isolation_class: IsolationClass, why: str, hint: str = _NO_LOWER) -> IsolationNotProved:
    return IsolationNotProved(f"isolation class {isolation_class!r} is not proved: {why}", hint=hint)


def _check_control(isolation_class: IsolationClass, reached: Mapping[str, bool]) -> None:
    """Refuse a proof whose control did not reach every canary."""
    wanted = CONTROLLED_PROBES | OPEN_PROBES - OF_CALLS
    if this_machine().hides_memory:
        wanted -= _MEMORY_PROBES
    for name in _missing(wanted, reached):
        why = f"its control failed: {name!r} cannot be reached without confinement either"
        raise _unproved(isolation_class, why, _REMEDIES.get(name, _NO_LOWER))


def _check_open(isolation_class: IsolationClass, reached: Mapping[str, bool]) -> None:
    for name in _missing(OPEN_PROBES, reached):
        raise _unproved(isolation_class, f"{name!r}, which every rubric needs, does not work in this class")


def _missing(wanted: Iterable[str], reached: Mapping[str, bool]) -> list[str]:
    return sorted(name for name in wanted if not reached.get(name))


async def _probed(launcher: Launcher, canaries: Canaries, look: Outside | None) -> _Probed:
    """Run one probe by a launcher, and inspect it while it waits."""
    pids: list[int] = []
    files = [("rubric.py", _PROBE_PROGRAM.read_bytes())]
    with (
        launcher.room(files) as room,
        stream_file(canaries.request) as stdin,
        stream_file() as stdout,
        stream_file() as stderr,
    ):
        launch = launcher.launch(room, (stdin, stdout, stderr), _SECONDS, pids.append)
        task = asyncio.ensure_future(launch)
        try:
            outside = await _looked_at(task, stdout, pids, look) if look is not None else {}
            os.pwrite(stdin, b"!", len(canaries.request))
            end = await task
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait([task])
        answer, _ = read_head(stdout, _ANSWER_BYTES)
        complaint, _ = read_tail(stderr, _COMPLAINT_BYTES)
    said = _answered(launcher.isolation_class, answer, end, complaint)
    return _Probed(said, canaries.witnessed(), outside)


async def _looked_at(
    probe: "asyncio.Future[ProcessEnd]", stdout: int, pids: list[int], look: Outside
) -> dict[str, bool]:
    """Wait until the probe reports that it waits, or ends, and inspect it."""
    for _ in range(int(_SECONDS / _POLL_SECONDS)):
        if probe.done() or os.fstat(stdout).st_size:
            break
        await asyncio.sleep(_POLL_SECONDS)
    # On a busy machine the number of the probe may arrive late. The probe waits, so we can wait, too.
    for _ in range(_TURNS):
        if pids or probe.done():
            break
        await asyncio.sleep(_POLL_SECONDS)
    return dict(look(pids[-1])) if pids and not probe.done() else {}


def _answered(
    isolation_class: IsolationClass, answer: bytes, end: ProcessEnd, complaint: bytes
) -> dict[str, bool]:
    """Read the answer of a probe that ended by itself; any other answer proves nothing."""
    if end.lost or end.timed_out:
        end_of_it = "was lost" if end.lost else "did not end in time"
        raise HarnessFailure(f"the probe of isolation class {isolation_class!r} {end_of_it}", hint=_AGAIN)
    how = _how_it_failed(end)
    try:
        document = decode_json(answer, _ANSWER_BYTES) if how is None else None
    except DecodingRefused as refusal:
        document, how = None, refusal.message
    if not isinstance(document, dict) or not all(type(value) is bool for value in document.values()):
        said = one_line(complaint.decode(errors="replace").strip().rpartition("\n")[2], 200)
        why = f"the probe gave no answer ({how or 'it is not a list of results'}{': ' if said else ''}{said})"
        raise _unproved(isolation_class, why)
    return document


def _how_it_failed(end: ProcessEnd) -> str | None:
    if end.signal is not None or end.exit_code != 0:
        return f"signal {end.signal}" if end.signal else f"exit {end.exit_code}"
    return "it left a process behind" if end.leaked else None
