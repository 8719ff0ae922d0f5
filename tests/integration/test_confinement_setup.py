"""A step of the set-up that fails ends the process before anything foreign runs, and the reason is told."""

import asyncio
import os
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from codegenie.eval.errors import HarnessFailure, IsolationUnavailable, NotMeasured
from codegenie.eval.isolation import zygote_client
from codegenie.eval.limits import LIMITS
from codegenie.eval.models import IsolationClass, Spawn
from tests.support.confinement import (
    CONFINED,
    SPAWNS,
    a_launcher,
    each_class,
    run_by,
    run_confined,
    seconds_until,
    use_edited_guardian,
)

FAIL = 'raise OSError("made to fail")\n'

RULES = "        ruleset.allow([*self._places, (room, landlock.WORK)])\n"
NO_NEW_PRIVILEGES = "        syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)\n        ruleset.take_on()\n"

SEEN = '            if "seen" in request:\n'

# By name: the file, and the line before which the step fails in every copy.
STEPS: dict[str, tuple[tuple[IsolationClass, ...], str, str]] = {
    "tie to the zygote": (CONFINED, "zygote.py", "            tie_to_parent(self._number)\n"),
    "a session": (CONFINED, "zygote.py", "            os.setsid()\n"),
    "not to be seen": (CONFINED, "zygote.py", SEEN),
    "mount the room": (("namespace",), "lockdown.py", "        entries, size = measure(room)\n"),
    "enter the room": (("namespace",), "namespaces.py", "    os.chdir(visible_paths.ROOM)\n"),
    "unpack": (("namespace",), "lockdown.py", "        unpack(room)\n"),
    "enter the directory": (("landlock",), "lockdown.py", "        os.fchdir(room)\n"),
    "make rules": (("landlock",), "lockdown.py", RULES),
    "limits": (CONFINED, "lockdown.py", "            _, ours = resource.getrlimit(which)\n"),
    "capabilities": (CONFINED, "syscalls.py", '    call("capset", header, (ctypes.c_uint32 * 6)())\n'),
    "no new rights": (CONFINED, "lockdown.py", NO_NEW_PRIVILEGES),
    "take on the rules": (CONFINED, "lockdown.py", "        ruleset.take_on()\n"),
    "load the filter": (CONFINED, "lockdown.py", "        calls.load(os.getpid())\n"),
    "close": (CONFINED, "zygote.py", "            syscalls.close_from(3, when_replaced=cold)\n"),
}  # fmt: skip


def failing(monkeypatch: pytest.MonkeyPatch, directory: Path, file: str, line: str) -> None:
    margin = line[: len(line) - len(line.lstrip())]
    use_edited_guardian(monkeypatch, directory, (file, line, f"{margin}{FAIL}{line}"))


@pytest.mark.parametrize(
    ("isolation_class", "step"), [(each, step) for step, row in STEPS.items() for each in row[0]]
)
def test_a_step_that_fails_in_the_copy_is_told_and_nothing_has_run(
    isolation_class: IsolationClass, step: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _, file, line = STEPS[step]
    failing(monkeypatch, tmp_path, file, line)

    async def run(spawn: Spawn) -> bytes:
        source = "import os; os.write(1, b'ran')"
        with tempfile.TemporaryFile() as stdout:
            async with a_launcher(isolation_class, spawn) as launcher:
                with launcher.room([("rubric.py", source.encode())]) as room:
                    streams = (stdout.fileno(), stdout.fileno(), stdout.fileno())
                    with pytest.raises(HarnessFailure, match="OSError: made to fail"):
                        await launcher.launch(room, streams, 20)
            stdout.seek(0)
            return stdout.read()

    assert [asyncio.run(run(spawn)) for spawn in SPAWNS] == [b"", b""]


# The same for the steps by which a zygote is made.
LOOK = '        self._check("mnt", "uts", "ipc", "pid", "net")\n'
NAME = '        syscalls.call("sethostname", HOST_NAME.encode(), len(HOST_NAME))\n'
HIDE = "    syscalls.prctl(syscalls.PR_SET_DUMPABLE, 0)\n"
DOMAIN = '        syscalls.call("setdomainname", DOMAIN_NAME.encode(), len(DOMAIN_NAME))\n'
FILTER = "        code = program(syscalls.MACHINE, metadata=metadata, execution=execution)\n"
STEPS_OF_A_ZYGOTE: dict[str, tuple[tuple[IsolationClass, ...], str, str]] = {
    "look at the namespaces": (("namespace",), "namespaces.py", LOOK),
    "look at the user namespace": (("namespace",), "namespaces.py", '        self._check("user")\n'),
    "name": (("namespace",), "namespaces.py", NAME),
    "domain": (("namespace",), "namespaces.py", DOMAIN),
    "root": (("namespace",), "namespaces.py", "        syscalls.pivot_into(CAGE)\n"),
    "bounding set": (("namespace",), "namespaces.py", "        syscalls.drop_bounding_set()\n"),
    "tie to the guardian": (CONFINED, "guardian_program.py", "        tie_to_parent(self._number)\n"),
    "not to be seen": (("namespace",), "user_map.py", HIDE),
    "outer rules": (("landlock",), "lockdown.py", "        outer.take_on()\n"),
    "filter": (CONFINED, "seccomp.py", FILTER),
}  # fmt: skip


@pytest.mark.parametrize(
    ("isolation_class", "step"), [(each, step) for step, row in STEPS_OF_A_ZYGOTE.items() for each in row[0]]
)
def test_a_step_that_fails_in_the_zygote_is_told_and_nothing_is_left(
    isolation_class: IsolationClass, step: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _, file, line = STEPS_OF_A_ZYGOTE[step]
    failing(monkeypatch, tmp_path, file, line)

    with pytest.raises(HarnessFailure, match="OSError: made to fail"):
        run_confined(isolation_class, "")
    assert seconds_until(lambda: not started_from(tmp_path)) is not None


def started_from(directory: Path) -> list[int]:
    """Return the guardians that were started from an edited copy, and their zygotes."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                arguments = Path(f"/proc/{name}/cmdline").read_bytes()
            except OSError:
                continue
            if f"{directory}/edited".encode() in arguments:
                found.append(int(name))
    return found


BEFORE_SERVING = "        guardian = Guardian(settings, directory, control)\n"
BEFORE_ENTERING = '        limits, execution = self._settings["limits"], self._program["spawn"] == "cold"\n'
AFTER_ENTERING = "            control.send({protocol.READY: True})\n"
IN_THE_LOOP = "            self._forget_the_dead()\n"
HANG, DIE = "import time; time.sleep(60)\n", "os._exit(3)\n"


@each_class
@pytest.mark.parametrize("what", [HANG, DIE], ids=["hangs", "dies"])
@pytest.mark.parametrize(
    "where",
    [BEFORE_SERVING, IN_THE_LOOP, BEFORE_ENTERING, AFTER_ENTERING],
    ids=["guardian-at-its-start", "guardian-later", "zygote-at-its-start", "zygote-at-its-end"],
)
def test_a_guardian_or_a_zygote_that_dies_or_hangs_at_its_start_leaves_nothing(
    isolation_class: IsolationClass, what: str, where: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    margin = where[: len(where) - len(where.lstrip())]
    use_edited_guardian(monkeypatch, tmp_path, ("guardian_program.py", where, f"{margin}{what}{where}"))
    monkeypatch.setattr(
        zygote_client, "LIMITS", replace(LIMITS, zygote_seconds=1.0 if what == HANG else 20.0)
    )

    # Whoever it was that held it up or ended it: that lowers no class.
    with pytest.raises(HarnessFailure, match=r"no answer in time|it ended by itself|Errno"):
        run_confined(isolation_class, "")
    assert seconds_until(lambda: not started_from(tmp_path)) is not None


def test_a_namespace_that_is_not_a_new_one_is_refused_before_anything_is_done(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # Another number than that of the namespace outside: as if the flag had been forgotten.
    same = ("namespaces.py", "if self._namespace(kind) == self._outside[kind]]", "if kind == 'uts']")
    use_edited_guardian(monkeypatch, tmp_path, same, ("namespaces.py", NAME, "        os._exit(9)\n"))
    with pytest.raises(IsolationUnavailable, match="the uts namespace is not a new one"):
        run_confined("namespace", "")


@each_class
def test_a_copy_whose_zygote_is_gone_before_it_could_be_tied_to_it_does_not_go_on(
    isolation_class: IsolationClass, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # As a copy sees it: its parent is another process than the one that it was made by.
    gone = (
        "zygote.py",
        "            tie_to_parent(self._number)\n",
        "            tie_to_parent(self._number + 1)\n",
    )
    use_edited_guardian(monkeypatch, tmp_path, gone)
    with pytest.raises(HarnessFailure, match="the parent is gone"):
        run_confined(isolation_class, "")


ANSWERS = {"ENOSYS": True, "EPERM": True, "EACCES": True, "EINVAL": True, "EOPNOTSUPP": True, "ENODEV": True}
ANSWERS |= dict.fromkeys(["ENOSPC", "EDQUOT", "EFBIG", "ENOMEM", "EAGAIN", "EMFILE", "ENOENT", "EIO"], False)


@pytest.mark.parametrize("name", ANSWERS)
def test_only_an_answer_that_means_that_the_kernel_lacks_something_says_so_of_the_class(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    line = "        os.fchdir(room)\n"
    answer = f"        import errno; raise OSError(errno.{name}, 'made to fail')\n"
    use_edited_guardian(monkeypatch, tmp_path, ("lockdown.py", line, answer + line))

    with pytest.raises(IsolationUnavailable if ANSWERS[name] else HarnessFailure, match="made to fail"):
        run_confined("landlock", "")


@each_class
def test_a_fresh_interpreter_that_cannot_be_started_is_told(
    isolation_class: IsolationClass, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    nowhere = (
        "zygote.py",
        "        os.execv(arguments[0], arguments)",
        '        os.execv("/nowhere", arguments)',
    )
    use_edited_guardian(monkeypatch, tmp_path, nowhere)
    with pytest.raises(NotMeasured, match=r"FileNotFoundError|PermissionError"):
        run_confined(isolation_class, "", "cold")


@each_class
def test_a_program_that_is_not_there_is_the_programs_fault(isolation_class: IsolationClass) -> None:
    async def run() -> list[tuple[int | None, str | None]]:
        async with a_launcher(isolation_class) as launcher:
            with launcher.room([("other.py", b"")]) as room, tempfile.TemporaryFile() as stream:
                streams = (stream.fileno(),) * 3
                end = await launcher.launch(room, (streams[0], streams[1], streams[2]), 20)
            return [(end.exit_code, end.signal), (await run_by(launcher, "")).way]

    first, second = asyncio.run(run())
    assert first != (0, None)
    assert second == (0, None)
