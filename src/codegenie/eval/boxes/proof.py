"""Proof of the boxes of an agent, before the first case: a thief is sent into one and must find nothing.

The same thief in the outer box, which has no walls, must find everything, or "nothing" would prove nothing.
What it got is the word of the harness: tokens that came back, listeners, and places on the host.
"""

import asyncio
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import AsyncExitStack, ExitStack, contextmanager
from pathlib import Path

from codegenie.eval.boxes.bait import DESCRIPTOR_IN_THE_OUTER_BOX, Bait, has_heard, laid_out
from codegenie.eval.boxes.box import Box
from codegenie.eval.boxes.box_from_outside import seen_from_outside
from codegenie.eval.boxes.interpreters import interpreter_in
from codegenie.eval.boxes.launching import Boxes
from codegenie.eval.boxes.request import AgentStart, BoxEnd, BoxLimits, BoxRequest, BoxView, Network
from codegenie.eval.errors import IsolationNotProved, IsolationUnavailable
from codegenie.eval.isolation.machine import Machine, lacks, proc_is_mounted, this_machine
from codegenie.eval.isolation.proof import STRONGEST_FIRST, taken_by_auto
from codegenie.eval.isolation_proof import BoxProof, ProbeResult, required_of_box
from codegenie.eval.models import IsolationClass
from codegenie.eval.system.child_files import read_head, read_tail, stream_file
from codegenie.eval.system.packed_tree import Packer, packed

_PROGRAM = Path(__file__).with_name("thief_program.py")
# The thief takes milliseconds, and much longer under load. Only a hang takes as long as this.
_SECONDS = 60.0
_POLL_SECONDS = 0.002
_ANSWER_BYTES = 16 << 20
_HINT = "`codegenie eval doctor` says what is missing on this machine"
_NO_LOWER = "correct that, and run again: a weaker class is used only if --sut-isolation names it"
_ACCEPTS = "`codegenie eval doctor` says what is missing; --sut-isolation subprocess runs agents unconfined"
_LIMITS = BoxLimits(processes=64, workspace_bytes=64 << 20, workspace_entries=4096)


def _ignore(_reason: str) -> None:
    """Tell the reason to no caller."""


async def strongest_proved(
    asked_for: str,
    run_directory: Path,
    network: Network,
    told: Callable[[str], object] = _ignore,
) -> tuple[Boxes, BoxProof]:
    """Return boxes of the strongest class that was proved, or of the one that was asked for.

    Only a feature that the kernel lacks leads to a weaker class; `told` gets the reason. Raises
    IsolationUnavailable if no class can be taken, IsolationNotProved if a proof fails.
    """
    if asked_for != "auto":
        named = next((each for each in STRONGEST_FIRST if each == asked_for), None)
        if named is None:
            raise IsolationUnavailable(f"there is no isolation class {asked_for!r}", hint=_HINT)
        return await proved(named, run_directory, network)
    reasons = []
    for isolation_class in taken_by_auto(this_machine()):
        try:
            return await proved(isolation_class, run_directory, network)
        except IsolationUnavailable as refusal:
            told(refusal.message)
            reasons.append(refusal.message)
    raise IsolationUnavailable(f"this machine cannot confine agents: {'; '.join(reasons)}", hint=_ACCEPTS)


async def proved(
    isolation_class: IsolationClass, run_directory: Path, network: Network
) -> tuple[Boxes, BoxProof]:
    """Return boxes of a class with its proof; `subprocess` claims nothing, so nothing is proved for it.

    Raises IsolationUnavailable if the kernel lacks the class, and IsolationNotProved if the proof fails.
    """
    machine = this_machine()
    problem = lacks(machine)
    if problem:
        raise IsolationUnavailable(f"agents cannot be confined here: {problem}", hint=_HINT)
    if not proc_is_mounted():
        raise _unproved(isolation_class, "/proc is not mounted", "`mount -t proc proc /proc`, and run again")
    async with AsyncExitStack() as unproved:
        boxes = Boxes(isolation_class, run_directory)
        unproved.push_async_callback(boxes.close)
        try:
            proof = await prove(boxes, run_directory, network)
        except OSError as error:
            raise _unproved(isolation_class, f"the proof was disturbed: {error}") from None
        unproved.pop_all()
    return boxes, proof


async def prove(boxes: Boxes, run_directory: Path, network: Network) -> BoxProof:
    """Send a thief into a box and another one into the outer box, and compare."""
    isolation_class = boxes.isolation_class
    if isolation_class == "subprocess":
        return _record(isolation_class, network, this_machine(), {})
    outer = Boxes(isolation_class, run_directory, is_control=True)
    try:
        with (
            laid_out(run_directory, victim=False) as for_control,
            laid_out(run_directory, victim=True) as for_class,
        ):
            # Both have ended before the bait is removed, also if one of them fails.
            both = await asyncio.gather(
                _robbed(outer, for_control, "host"),
                _robbed(boxes, for_class, network),
                return_exceptions=True,
            )
    finally:
        await outer.close()
    control, confined = map(_raised, both)
    _check_control(isolation_class, network, control)
    blocked = {name: not stolen for name, stolen in confined.items()}
    proof = _record(isolation_class, network, this_machine(), blocked)
    for name in proof.unproved:
        why = "was not blocked" if name in blocked else "was not tried"
        raise _unproved(isolation_class, f"the thief's {name!r} {why}")
    return proof


def _raised(ended: dict[str, bool] | BaseException) -> dict[str, bool]:
    if isinstance(ended, BaseException):
        raise ended
    return ended


def _record(
    isolation_class: IsolationClass, network: Network, machine: Machine, blocked: Mapping[str, bool]
) -> BoxProof:
    return BoxProof(
        isolation_class=isolation_class,
        network=network,
        kernel=machine.kernel,
        landlock_abi=machine.landlock_abi,
        probes=tuple(ProbeResult(name=name, blocked=held) for name, held in sorted(blocked.items())),
    )


def _check_control(isolation_class: IsolationClass, network: Network, reached: Mapping[str, bool]) -> None:
    """Refuse a proof whose control did not succeed everywhere."""
    wanted = {name for name in required_of_box(isolation_class, network) if not name.startswith("outside-")}
    for name in sorted(wanted):
        if not reached.get(name):
            why = f"its control failed: {name!r} cannot be reached without walls either"
            raise _unproved(isolation_class, why)


async def _robbed(boxes: Boxes, bait: Bait, network: Network) -> dict[str, bool]:
    """Send one thief, look at it from outside, and return what it got away with."""
    isolation_class = boxes.isolation_class
    interpreter, shown = interpreter_in(isolation_class)
    view = BoxView((*shown, *bait.readable), bait.secrets, network, _LIMITS)
    with ExitStack() as held:
        stdout, stderr = (held.enter_context(stream_file()) for _ in range(2))
        nothing = held.enter_context(_parcel([]))
        thief = held.enter_context(_parcel([("thief.py", _PROGRAM.read_bytes())]))
        async with await boxes.open(BoxRequest(view, nothing, thief)) as box:
            stdin = held.enter_context(stream_file(bait.request(box.broker_port)))
            argv = (interpreter, "-I", "-S", "-B", f"{box.agent_path}/thief.py")
            start = AgentStart(argv, {"PATH": "/usr/bin:/bin"}, (stdin, stdout, stderr), _SECONDS)
            start = _beside_a_victim(start, bait) if boxes.is_control else start
            end, outside = await _watched(box, start, required_of_box(isolation_class, network))
            complaint = read_tail(stderr, 4096)[0].decode(errors="replace").strip().rpartition("\n")[2]
            _check_work(isolation_class, box, bait, f"{_how(end)}: {complaint}")
            _check_door(isolation_class, box, bait)
        output, _ = read_head(stdout, _ANSWER_BYTES)
    return {**bait.stolen(output), **{name: not holds for name, holds in outside.items()}}


@contextmanager
def _parcel(files: list[tuple[str, bytes]]) -> Iterator[int]:
    with stream_file() as descriptor:
        packer = Packer(descriptor)
        packer.ready(*packed(files))
        packer.close()
        yield descriptor


async def _watched(box: Box, start: AgentStart, required: frozenset[str]) -> tuple[BoxEnd, dict[str, bool]]:
    """Run the thief; return how it ended, and what was seen of it from outside."""
    running = asyncio.ensure_future(box.run(start))
    try:
        outside = await _looked_at(box, running, required)
        return await running, outside
    finally:
        if not running.done():
            running.cancel()
            await asyncio.wait([running])


def _beside_a_victim(start: AgentStart, bait: Bait) -> AgentStart:
    """Start another process first, which holds what the thief shall find and does not have itself."""
    victim = f'sleep {2 * _SECONDS:.0f} & unset CANARY; exec "$@" {DESCRIPTOR_IN_THE_OUTER_BOX}<&-'
    return AgentStart(
        ("/bin/sh", "-c", victim, "sh", *start.argv),
        {**start.environment, "CANARY": bait.tokens["victim-environment"]},
        (*start.streams, bait.behind),
        start.seconds,
    )


async def _looked_at(
    box: Box, running: "asyncio.Future[BoxEnd]", required: frozenset[str]
) -> dict[str, bool]:
    """Wait until the thief has tried everything, look at it, and let it go."""
    for _ in range(int(_SECONDS / _POLL_SECONDS)):
        if running.done() or "finished" in os.listdir(box.workspace):
            break
        await asyncio.sleep(_POLL_SECONDS)
    found = seen_from_outside(box.first_process, required)
    os.close(os.open("released", os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o644, dir_fd=box.workspace))
    return found


def _check_work(isolation_class: IsolationClass, box: Box, bait: Bait, how: str) -> None:
    """Refuse a proof whose thief could not do what every agent must be able to do."""
    try:
        descriptor = os.open("worked.txt", os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=box.workspace)
    except OSError:
        raise _unproved(isolation_class, f"the thief could not work in its box ({how})") from None
    try:
        works = os.read(descriptor, 1024) == bait.shown_token.encode()
    finally:
        os.close(descriptor)
    if not works:
        raise _unproved(isolation_class, "what a box should show cannot be read in it")


def _check_door(isolation_class: IsolationClass, box: Box, bait: Bait) -> None:
    """Refuse a proof whose thief could not use the door that its box has."""
    if box.listener is None:
        return
    with socket.socket(fileno=os.dup(box.listener)) as door:
        door.setblocking(False)  # noqa: FBT003 - the standard library's signature
        if not has_heard(door, bait.knock.encode()):
            raise _unproved(isolation_class, "the door to the broker cannot be used in its box")


def _how(end: BoxEnd) -> str:
    if end.timed_out or end.lost:
        return "it did not end in time" if end.timed_out else "it was lost"
    return f"signal {end.signal}" if end.signal else f"exit {end.exit_code}"


def _unproved(isolation_class: IsolationClass, why: str, hint: str = _NO_LOWER) -> IsolationNotProved:
    return IsolationNotProved(f"boxes of class {isolation_class!r} are not proved: {why}", hint=hint)
