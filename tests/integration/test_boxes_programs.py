"""Programs in a box: what they are given, how their end is seen, deadlines, and caps."""

import asyncio
import json
import os
from collections.abc import Iterator

import pytest

from codegenie.eval.boxes.box import Box
from codegenie.eval.boxes.request import AgentStart, BoxEnd, BoxLimits
from codegenie.eval.errors import BoxFailed, ExecFailed, SutSpecInvalid
from codegenie.eval.models import IsolationClass
from tests.support.boxed import Stage, living_below, read_files, stage
from tests.support.confinement import CONFINED
from tests.support.sampling import one_worker, sampled

pytestmark = one_worker(__name__)


@pytest.fixture(scope="module", params=sampled(CONFINED, CONFINED[0].__eq__))
def boxes(request: pytest.FixtureRequest) -> Iterator[Stage]:
    isolation_class: IsolationClass = request.param
    with stage(isolation_class) as opened:
        yield opened


# What a program is given.


def test_a_program_works_in_a_copy_of_its_files_and_the_harness_reads_what_it_changed(boxes: Stage) -> None:
    played = boxes.play(
        "import os; print(sorted(os.listdir('.')), open('a/b.txt').read());"
        "open('new.txt', 'w').write('made'); os.remove('top.txt')",
        files={"top.txt": b"top", "a/b.txt": b"inner"},
    )

    assert (played.end.exit_code, played.end.left, played.end.timed_out) == (0, 0, False)
    assert played.stdout == "['a', 'top.txt'] inner\n"
    assert played.files == {"new.txt": b"made"}


def test_a_program_gets_its_environment_and_its_private_home_and_nothing_else(boxes: Stage) -> None:
    played = boxes.play(
        "import json, os, stat; home = os.environ['HOME'];"
        "print(json.dumps([sorted(os.environ), open(home + '/.tool/settings').read(),"
        " stat.S_IMODE(os.stat(home + '/.tool/settings').st_mode), sorted(os.listdir('/proc/self/fd'))]))",
        home={".tool/settings": b"private"},
    )

    names, settings, mode, descriptors = json.loads(played.stdout)
    assert set(names) - {"LC_CTYPE"} == {"HOME", "PATH", "TMPDIR"}
    assert (settings, mode) == ("private", 0o600)
    # The last one is the listing itself.
    assert descriptors[:3] == ["0", "1", "2"]
    assert len(descriptors) == 4


def test_the_files_of_an_agent_are_there_to_be_read_and_executed_and_not_to_be_changed(boxes: Stage) -> None:
    async def tried(box: Box) -> tuple[BoxEnd, str]:
        script = "cd $0; cat prompts/p.txt; echo x >> prompts/p.txt; touch y"
        return await boxes.run(box, ("sh", "-c", script, box.agent_path))

    end, said = boxes.in_box(tried, agent={"prompts/p.txt": b"read me\n"})

    assert said.startswith("read me\n")
    assert end.exit_code != 0
    assert said.count("annot") == 2


def test_further_descriptors_reach_a_program_under_their_numbers(boxes: Stage) -> None:
    async def tried(box: Box) -> tuple[BoxEnd, bytes]:
        ours, theirs = os.pipe()
        inner, outer = os.pipe()
        os.write(outer, b"asked")
        null = os.open("/dev/null", os.O_RDWR)
        argv = ("sh", "-c", "cat <&3 >&4")
        os.close(outer)
        end = await box.run(
            AgentStart(argv, {"PATH": "/usr/bin:/bin"}, (null, null, null, inner, theirs), 30.0)
        )
        for descriptor in (inner, theirs, null):
            os.close(descriptor)
        answer = os.read(ours, 100)
        os.close(ours)
        return end, answer

    end, answer = boxes.in_box(tried)

    assert (end.exit_code, answer) == (0, b"asked")


def test_a_workspace_becomes_a_repository_with_one_commit_that_is_the_same_every_time(boxes: Stage) -> None:
    async def asked(box: Box) -> tuple[BoxEnd, str]:
        return await boxes.run(
            box,
            ("git", "log", "--format=%H %an %aI %s"),
            environment={"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null"},
        )

    first, second = (boxes.in_box(asked, files={"a.txt": b"a\n"}, git=True) for _ in range(2))

    assert first[1] == second[1]
    assert first[1].split(" ", 1)[1] == "codegenie 2000-01-01T00:00:00+00:00 input\n"


def test_two_programs_run_one_after_the_other_in_one_box(boxes: Stage) -> None:
    async def both(box: Box) -> list[str]:
        return [(await boxes.run(box, ("sh", "-c", f"echo {n} >> seen; cat seen")))[1] for n in (1, 2)]

    assert boxes.in_box(both) == ["1\n", "1\n2\n"]


# How the end of a program is seen.


@pytest.mark.parametrize(
    ("source", "exit_code", "name"),
    [("raise SystemExit(7)", 7, None), ("import os; os.kill(os.getpid(), 11)", None, "SEGV")],
)
def test_an_exit_code_and_a_signal_are_told_apart(
    boxes: Stage, source: str, exit_code: int | None, name: str | None
) -> None:
    end = boxes.play(source).end

    assert (end.exit_code, end.signal, end.lost) == (exit_code, name, False)


@pytest.mark.parametrize(
    ("path", "number"), [("/usr/bin/no-such-program", 2), ("no-such-program", 2), ("/etc", 13)]
)
def test_a_program_that_cannot_be_executed_is_told_from_one_that_fails(
    boxes: Stage, path: str, number: int
) -> None:
    async def tried(box: Box) -> tuple[str, int | None, str]:
        with pytest.raises(ExecFailed) as refused:
            await boxes.run(box, (path,))
        # The box itself is sound.
        return refused.value.path, refused.value.errno, (await boxes.run(box, ("echo", "sound")))[1]

    assert boxes.in_box(tried) == (path, number, "sound\n")


def test_a_program_that_exits_as_our_own_set_up_would_is_one_that_ran(boxes: Stage) -> None:
    assert boxes.play("import os; os._exit(98)").end.exit_code == 98


def test_what_a_program_leaves_is_counted_and_ended(boxes: Stage) -> None:
    left = """
import os, signal, time
for _ in range(3):
    if os.fork() == 0:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if os.fork() == 0:
            open(f"alive-{os.getpid()}", "w").close()
            time.sleep(600)
        os._exit(0)
while sum(name.startswith("alive-") for name in os.listdir(".")) < 3:
    time.sleep(0.01)
"""

    async def tried(box: Box) -> tuple[BoxEnd, list[int]]:
        argv = (boxes.interpreter, "-I", "-S", "-c", left)
        end, _ = await boxes.run(box, argv)
        return end, living_below(box.first_process)

    end, alive = boxes.in_box(tried)

    assert (end.exit_code, end.left, alive) == (0, 3, [])


# Deadlines.


def test_at_the_deadline_a_program_is_asked_to_end_and_its_work_is_kept(boxes: Stage) -> None:
    source = """
import signal, sys, time
def end(*_):
    open("last", "w").write("word")
    sys.exit(143)
signal.signal(signal.SIGTERM, end)
open("ready", "w").close()
time.sleep(600)
"""
    played = boxes.play(source, seconds=1.5, grace_seconds=30.0)

    assert (played.end.timed_out, played.end.exit_code, played.end.signal) == (True, 143, None)
    assert played.files == {"ready": b"", "last": b"word"}


def test_a_program_that_ignores_the_request_is_killed_with_all_that_it_started(boxes: Stage) -> None:
    source = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
open(f"ready-{os.getpid()}", "w").close()
time.sleep(600)
"""

    async def tried(box: Box) -> tuple[BoxEnd, list[int], dict[str, bytes]]:
        number = box.first_process
        argv = (boxes.interpreter, "-I", "-S", "-c", source)
        end, _ = await boxes.run(box, argv, seconds=1.5, grace_seconds=0.3)
        return end, living_below(number), read_files(box.workspace)

    end, alive, files = boxes.in_box(tried)

    assert (end.timed_out, end.exit_code, end.lost, alive) == (True, None, False, [])
    assert len(files) == 2


def test_credited_seconds_move_the_deadline_and_are_asked_for_until_there_are_none(boxes: Stage) -> None:
    credited = [0.4, 0.4, 30.0]
    asked: list[float] = []

    def extend() -> float:
        asked.append(credited[len(asked)])
        return asked[-1]

    async def tried(box: Box) -> BoxEnd:
        return (await boxes.run(box, ("sleep", "1"), seconds=0.1, extend=extend))[0]

    assert boxes.in_box(tried).exit_code == 0
    assert asked == credited


# Caps.


def test_memory_of_all_processes_together_is_watched(boxes: Stage) -> None:
    source = """
import os, time
for _ in range(3):
    if os.fork() == 0:
        break
held = b"x" * (60 << 20)
time.sleep(600)
"""
    view = boxes.view(limits=BoxLimits(memory_total_bytes=200 << 20))
    end = boxes.play(source, view=view, seconds=25.0).end

    assert (end.ended_over, end.timed_out) == ("memory", False)


def test_memory_in_anonymous_files_is_watched_too(boxes: Stage) -> None:
    source = """
import os, time
held = os.memfd_create("held")
for _ in range(150):
    os.write(held, bytes(1 << 20))
time.sleep(600)
"""
    view = boxes.view(limits=BoxLimits(memory_total_bytes=128 << 20))

    assert boxes.play(source, view=view, seconds=25.0).end.ended_over == "memory"


def test_one_process_gets_no_more_memory_and_no_larger_file_than_its_cap(boxes: Stage) -> None:
    source = """
import signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
try:
    bytearray(300 << 20)
except MemoryError:
    print("memory")
with open("large", "wb", buffering=0) as file:
    try:
        while True:
            file.write(bytes(1 << 20))
    except OSError as error:
        print(error.errno, file.tell())
"""
    view = boxes.view(limits=BoxLimits(process_memory_bytes=200 << 20, file_bytes=3 << 20))

    assert boxes.play(source, view=view).stdout == f"memory\n27 {3 << 20}\n"


# What is refused before a box exists, and what is ours when it fails.


def test_a_view_that_shows_a_secret_is_refused(boxes: Stage) -> None:
    place = str(boxes.directory)

    with pytest.raises(SutSpecInvalid, match="which an agent must not see"):
        boxes.in_box(asyncio.sleep, view=boxes.view(readable=(place,), secrets=(place,)))  # type: ignore[arg-type]


def test_more_streams_than_a_message_can_carry_are_refused(boxes: Stage) -> None:
    async def tried(box: Box) -> None:
        with pytest.raises(BoxFailed, match="8 streams"):
            await box.run(AgentStart(("true",), {}, (0,) * 9, 1.0))

    boxes.in_box(tried)
