"""Launchers that answer as a test says, and a probe that goes its way without them."""

import asyncio
import json
import os
import runpy
import socket
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from codegenie.eval.isolation import proof as proving
from codegenie.eval.isolation.call_trials import DOORS
from codegenie.eval.isolation.canaries import Canaries, planted
from codegenie.eval.isolation.launchers import Streams, Unconfined, Watch
from codegenie.eval.isolation.outside_view import seen_from_outside
from codegenie.eval.isolation.proof import OF_CALLS, Outside, Planter, prove
from codegenie.eval.isolation_proof import OPEN_PROBES, IsolationProof
from codegenie.eval.models import IsolationClass, Spawn
from codegenie.eval.ports import Room
from codegenie.eval.system.processes import ProcessEnd

CLASSES: tuple[IsolationClass, ...] = ("landlock", "namespace")
PROBE_PROGRAM = Path(proving.__file__).with_name("probe_program.py")
PROBE = runpy.run_path(str(PROBE_PROGRAM), run_name="read")
CALLS_PROGRAM = Path(proving.__file__).with_name("probe_calls_program.py")
CALL_PROBE = runpy.run_path(str(CALLS_PROGRAM), run_name="read")
TRIED_FIRST = frozenset({*PROBE["TRIES"], *PROBE["LAST_TRIES"], PROBE["SHELL"]})
TRIED_BY_CALLS = frozenset({*CALL_PROBE["TRIES"], *CALL_PROBE["OF_LANDLOCK"]})
SEEN_BY_AN_END = frozenset({*DOORS, "deadline", "exec-library"})
TRIED = TRIED_FIRST | TRIED_BY_CALLS | SEEN_BY_AN_END
OUTSIDE = frozenset(seen_from_outside(os.getpid()))
Deed = Callable[[dict[str, Any]], object]
WELL = ProcessEnd(exit_code=0)


def blocked_answer() -> dict[str, bool]:
    """Return what both probes say when they reach nothing but what every rubric may."""
    return {**dict.fromkeys(TRIED_FIRST | TRIED_BY_CALLS, False), **dict.fromkeys(OPEN_PROBES, True)}


class Saying:
    """A launcher that starts nothing, and in whose rooms the probe says what the test wants it to say."""

    wants_parcel = False
    spawn: Spawn = "zygote"

    def __init__(
        self,
        isolation_class: IsolationClass,
        answer: Mapping[str, object] | bytes | None = None,
        *,
        deed: Deed = bool,
        end: ProcessEnd = WELL,
        seen: bool = True,
    ) -> None:
        self.isolation_class: IsolationClass = isolation_class
        said = blocked_answer() if answer is None else answer
        self._got_through = said if isinstance(said, Mapping) else {}
        of_calls = TRIED_BY_CALLS | OF_CALLS
        found = blocked_answer() if isinstance(said, bytes) else said
        self._calls = {name: value for name, value in found.items() if name in of_calls}
        self._answer = said if isinstance(said, bytes) else _encoded(said, without=of_calls | SEEN_BY_AN_END)
        self._deed = deed
        self._end = end
        self._seen = seen

    def divide(self, slots: int) -> None:
        """Have nothing to divide."""

    @contextmanager
    def room(self, files: Sequence[tuple[str, bytes]]) -> Iterator[Room]:
        """Take a probe as any launcher does."""
        assert [name for name, _ in files] == ["rubric.py"]
        yield Path("nowhere")

    async def launch(
        self,
        room: Room,
        streams: Streams,
        seconds: float,
        watch: Watch | None = None,
    ) -> ProcessEnd:
        """Answer in place of a probe, once it was looked at."""
        assert room == Path("nowhere")
        stdin, stdout, _ = streams
        line = os.pread(stdin, 1 << 16, 0).partition(b"\n")[0]
        want = json.loads(line)
        if "mode" in want:
            return self._called(want["mode"], stdout)
        self._deed(want)
        if watch is not None and self._seen:
            watch(os.getpid())
        os.write(stdout, b"\n")
        async with asyncio.timeout(seconds):
            while not os.pread(stdin, 1, len(line) + 1):  # noqa: ASYNC110 - as the probe does
                await asyncio.sleep(0.001)
        os.write(stdout, self._answer)
        return self._end

    def _called(self, mode: str, stdout: int) -> ProcessEnd:
        """Answer in place of the second probe, or end as it would."""
        if mode == "calls":
            os.write(stdout, json.dumps(self._calls).encode() + b"\n")
            os.write(stdout, b"a library" if self._got_through.get("exec-library") else b"")
            return WELL
        if self._got_through.get(mode):
            return WELL
        return ProcessEnd(timed_out=True) if mode == "deadline" else ProcessEnd(signal="SYS")

    async def close(self) -> None:
        """Hold nothing."""


def _encoded(said: Mapping[str, object], without: Collection[str]) -> bytes:
    return json.dumps({name: value for name, value in said.items() if name not in without}).encode()


class Claiming(Unconfined):
    """A launcher that confines nothing and calls it a class."""

    def __init__(self, isolation_class: IsolationClass, run_directory: Path) -> None:
        super().__init__(run_directory)
        self.isolation_class = isolation_class


def all_well(_pid: int) -> dict[str, bool]:
    """See from outside what a whole confinement looks like."""
    return dict.fromkeys(OUTSIDE, True)


async def proved_with(
    launcher: Saying | Unconfined, directory: Path, look: Outside = all_well, plant: Planter = planted
) -> IsolationProof:
    """Prove the class of a launcher, with the real control beside it."""
    control = Unconfined(directory)
    try:
        return await prove(launcher, control, directory, look, plant)
    finally:
        await control.close()
        await launcher.close()


def without_listener(name: str) -> Planter:
    """Plant as usual, and take one listener away from whoever comes first, which is the control."""
    plants = iter([True, False])

    @contextmanager
    def plant(directory: Path) -> Iterator[Canaries]:
        with planted(directory) as canaries:
            if next(plants):
                canaries.listeners[name].close()
            yield canaries

    return plant


def without_file(field: str) -> Planter:
    """Plant as usual, and name a file to the control that is not there."""
    plants = iter([True, False])

    @contextmanager
    def plant(directory: Path) -> Iterator[Canaries]:
        with planted(directory) as canaries:
            request = json.loads(canaries.request)
            if next(plants):
                request[field] = f"{directory}/gone"
            raw = json.dumps(request).encode() + b"\n"
            yield replace(canaries, request=raw)

    return plant


def _called(family: int, kind: int, address: Any, word: str) -> None:  # noqa: ANN401 - as the family has it
    with socket.socket(family, kind) as line:
        line.connect(address)
        line.send(word.encode())


def _by_tcp(want: dict[str, Any], word: str) -> None:
    _called(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", want["tcp_port"]), word)


def _by_udp(want: dict[str, Any], word: str) -> None:
    _called(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", want["udp_port"]), word)


def _by_path(want: dict[str, Any], word: str) -> None:
    # By its directory: the path of a test may be longer than an address.
    directory = os.open(os.path.dirname(want["unix_socket"]), os.O_RDONLY)
    try:
        name = os.path.basename(want["unix_socket"])
        _called(socket.AF_UNIX, socket.SOCK_STREAM, f"/proc/self/fd/{directory}/{name}", word)
    finally:
        os.close(directory)


def _by_abstract_name(want: dict[str, Any], word: str) -> None:
    _called(socket.AF_UNIX, socket.SOCK_STREAM, f"\0{want['abstract_socket']}", word)


CALLS: dict[str, Callable[[dict[str, Any], str], None]] = {
    "tcp-connect": _by_tcp,
    "udp-send": _by_udp,
    "unix-socket": _by_path,
    "abstract-socket": _by_abstract_name,
}
"""How each listener is called, with a word to say."""


def _with_the_word(name: str) -> Deed:
    return lambda want: CALLS[name](want, want["words"][name])


DEEDS: dict[str, Deed] = {
    **{name: _with_the_word(name) for name in CALLS},
    "write-run-directory": lambda want: Path(want["written_file"]).touch(),
    "chmod-outside": lambda want: os.chmod(want["touched_file"], 0o640),
    "utime-outside": lambda want: os.utime(want["touched_file"], (1, 1)),
    "truncate-outside": lambda want: os.truncate(want["cut_file"], 0),
}
"""What a probe may do and deny; whoever looks after the canary knows better."""
