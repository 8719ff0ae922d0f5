"""What a step of a case can see and do, and what is taken down of it. All steps run in real boxes."""

import asyncio
import json
import struct
import time
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.support.executing import Bench, Execution, calls, calls_step, opened_bench, program_step
from tests.support.sampling import one_worker

pytestmark = one_worker(__name__)

TWO = {"int": "2"}
THREE = {"int": "3"}
FIVE = {"value": {"int": "5"}}
ADD = calls(("add", [TWO, THREE]))
HONEST = "def add(a, b):\n    return a + b\n"


class Stage:
    """One box server for all tests of this file."""

    def __init__(self, loop: asyncio.Runner, bench: Bench) -> None:
        self._loop = loop
        self._bench = bench

    def called(
        self,
        source: str,
        asked: str = ADD,
        files: Mapping[str, str] | None = None,
        **fields: Any,  # noqa: ANN401 - any field of a step
    ) -> Execution:
        """Execute calls of an agent's module."""
        case = {"input/calc.py": "", "execute/calls.json": asked, **(files or {})}
        output = {"files": {"calc.py": source}}
        return self._loop.run(self._bench.execute([calls_step(**fields)], case, output))["values"]

    def ran(
        self,
        source: str,
        output: Mapping[str, Any] | None = None,
        files: Mapping[str, str] | None = None,
        **fields: Any,  # noqa: ANN401 - any field of a step
    ) -> Execution:
        """Execute `main.py`, which the case places over whatever the agent has returned."""
        case = {"execute/main.py": source, **(files or {})}
        place = {"main.py": "execute/main.py", **fields.pop("place", {})}
        argv = fields.pop("argv", ("python3", "main.py"))
        step = program_step(*argv, place=place, **fields)
        return self._loop.run(self._bench.execute([step], case, output or {}))["cli"]

    def steps(self, steps: list[dict[str, Any]], files: Mapping[str, str]) -> dict[str, Execution]:
        """Execute several steps without any change of an agent."""
        return self._loop.run(self._bench.execute(steps, files, {}))


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    hidden = tmp_path_factory.mktemp("bench")
    (hidden / "answer.txt").write_text("42", encoding="utf-8")
    with asyncio.Runner() as loop:
        held = AsyncExitStack()
        yield Stage(loop, loop.run(held.enter_async_context(opened_bench(Path(hidden)))))
        loop.run(held.aclose())


def test_a_call_returns_the_value_by_its_exact_type(stage: Stage) -> None:
    source = (
        "class Other(int):\n    pass\n\n\ndef all_kinds():\n"
        "    return [None, True, 1, 1.5, 'a', b'a', (1,), {2}, {'k': []},"
        " Other(1), frozenset(), 10**5000, '\\ud800']\n"
    )

    done = stage.called(source, calls(("all_kinds", [])))

    assert done["end"] == "exit:0"
    assert done["replies"] == [
        {
            "value": {
                "list": [
                    *(None, True, {"int": "1"}, {"float": "0x1.8000000000000p+0"}, "a", {"bytes": "61"}),
                    *({"tuple": [{"int": "1"}]}, {"set": [{"int": "2"}]}, {"dict": [["k", {"list": []}]]}),
                    *({"object": "calc.Other"}, {"object": "builtins.frozenset"}),
                    *({"object": "builtins.int"}, {"object": "builtins.str"}),
                ]
            }
        }
    ]


def test_arguments_arrive_as_the_values_that_the_tags_say(stage: Stage) -> None:
    kinds: list[Any] = [None, False, "s", TWO, {"float": "0x1.8000000000000p+1"}, {"bytes": "00ff"}]
    kinds += [{"list": [TWO]}, {"tuple": []}, {"set": [TWO]}, {"dict": [["k", TWO]]}]

    done = stage.called("def show(*args):\n    return repr(args)\n", calls(("show", kinds)))

    assert done["replies"] == [{"value": "(None, False, 's', 2, 3.0, b'\\x00\\xff', [2], (), {2}, {'k': 2})"}]


def test_an_exception_and_a_module_that_cannot_be_imported_are_replies(stage: Stage) -> None:
    asked = calls(("add", [TWO, THREE]), ("missing", []), ("Box.fail", []))
    source = f"{HONEST}\n\nclass Box:\n    @staticmethod\n    def fail():\n        raise KeyError('k')\n"

    assert stage.called(source, asked)["replies"] == [
        FIVE,
        {"raised": "AttributeError"},
        {"raised": "KeyError"},
    ]
    assert stage.called("raise LookupError\n", asked)["replies"] == [{"raised": "LookupError"}] * 3


def test_arguments_that_a_call_changes_are_reported_only_if_that_is_asked_for(stage: Stage) -> None:
    source = "def grow(rows):\n    rows.append(1)\n"
    rows: list[Any] = [{"list": []}]

    assert stage.called(source, calls(("grow", rows), mutates=True))["replies"] == [
        {"value": None, "args": [{"list": [{"int": "1"}]}]}
    ]
    assert stage.called(source, calls(("grow", rows)))["replies"] == [{"value": None}]


@pytest.mark.parametrize(("fresh", "second"), [(False, "2"), (True, "1")])
def test_calls_share_a_process_unless_each_is_asked_to_be_fresh(
    stage: Stage, fresh: bool, second: str
) -> None:
    source = "seen = []\n\n\ndef count():\n    seen.append(1)\n    return len(seen)\n"

    done = stage.called(source, calls(("count", []), ("count", [])), fresh=fresh)

    assert done["replies"] == [{"value": {"int": "1"}}, {"value": {"int": second}}]


def frame(document: object) -> bytes:
    raw = json.dumps(document).encode()
    return struct.pack(">I", len(raw)) + raw


SURPRISES = {
    "another id": frame({"id": 7, "value": None}),
    "a boolean for an id": frame({"id": True, "value": None}),
    "no JSON": struct.pack(">I", 3) + b"{x}",
    "a value without a tag": frame({"id": 2, "value": 5}),
    "a tag that is not known": frame({"id": 2, "value": {"complex": "1j"}}),
    "a number in another form": frame({"id": 2, "value": {"int": "05"}}),
    "a verdict": frame({"id": 2, "value": None, "passed": True}),
    "a frame of 2 GB": struct.pack(">I", 1 << 31),
    "a key that appears twice": struct.pack(">I", 29) + b'{"id":2,"id":2,"value": null}',
}


@pytest.mark.parametrize("sent", SURPRISES.values(), ids=SURPRISES)
def test_the_first_surprise_is_no_answer_to_this_call_and_to_all_later_ones(
    stage: Stage, sent: bytes
) -> None:
    source = (
        f"import os\n\n{HONEST}\n\ndef surprise():\n    os.write(4, {sent!r})\n    os.close(4)\n"
        "    os.open('/dev/null', os.O_WRONLY)\n"
    )
    asked = calls(("add", [TWO, THREE]), ("surprise", []), ("add", [TWO, THREE]))

    done = stage.called(source, asked)

    # The harness does not wait for more: the worker reads the end of its requests and leaves.
    assert (done["end"], done["replies"]) == ("exit:0", [FIVE, None, None])


def test_a_frame_that_was_not_asked_for_ends_the_conversation(stage: Stage) -> None:
    ahead = frame({"id": 1, "value": {"int": "5"}}) + frame({"id": 2, "value": {"int": "5"}})
    source = f"import os\n\n\ndef add(a, b):\n    os.write(4, {ahead!r})\n    return a + b\n"
    at_import = f"import os\nos.write(4, {frame({'id': 1, 'value': {'int': '5'}})!r})\n{HONEST}"

    assert stage.called(source, calls(*[("add", [TWO, THREE])] * 2))["replies"] == [FIVE, None]
    assert stage.called(at_import)["replies"] == [None]


def test_a_call_beyond_its_time_ends_the_step_and_keeps_the_replies_before_it(stage: Stage) -> None:
    source = f"import time\n\n{HONEST}\n\ndef wait():\n    time.sleep(600)\n"
    asked = calls(("add", [TWO, THREE]), ("wait", []), ("add", [TWO, THREE]))

    began = time.monotonic()
    done = stage.called(source, asked, call_seconds=1, seconds=300)

    assert (done["end"], done["replies"]) == ("timeout", [FIVE, None, None])
    # Generous, and far below the time of the step.
    assert time.monotonic() - began < 120


def test_an_import_beyond_the_time_of_the_step_is_a_timeout(stage: Stage) -> None:
    done = stage.called("import time\ntime.sleep(600)\n", seconds=2)

    assert (done["end"], done["replies"]) == ("timeout", [None])


def test_what_the_code_prints_is_taken_down_and_is_no_reply(stage: Stage) -> None:
    add = "def add(a, b):\n    print('err', file=sys.stderr)\n    return a + b\n"
    source = f"import sys\nprint('loaded')\n\n\n{add}"

    done = stage.called(source)

    assert (done["stdout"], done["stderr"], done["replies"]) == ("loaded\n", "err\n", [FIVE])


def test_a_program_gets_its_input_and_its_files_and_leaves_what_it_is_asked_for(stage: Stage) -> None:
    source = (
        "import os, sys\nopen('out.json', 'w').write(sys.stdin.read().upper())\n"
        "print(open('data.csv').read(), sorted(os.listdir()), sys.argv[1:])\nsys.exit(3)\n"
    )

    done = stage.ran(
        source,
        {"files": {"data.csv": "the agent's", "more.txt": "kept", "gone.txt": None}},
        {"input/gone.txt": "x", "input/stays.txt": "y", "execute/in.txt": "abc", "execute/data.csv": "1;2"},
        argv=("python3", "-I", "main.py", "--json"),
        stdin="execute/in.txt",
        place={"data.csv": "execute/data.csv"},
        outputs=["out.json", "missing.json"],
    )

    assert done == {
        "end": "exit:3",
        "stdout": "1;2 ['data.csv', 'main.py', 'more.txt', 'out.json', 'stays.txt'] ['--json']\n",
        "stderr": "",
        "files": {"out.json": "ABC", "missing.json": None},
        "replies": [],
    }


def test_files_of_a_step_win_over_whatever_the_agent_put_in_their_way(stage: Stage) -> None:
    files = {"data.csv/inner": "x", "main.py/inner": "x", "deep": "a file where a directory has to be"}

    done = stage.ran(
        "print(open('data.csv').read(), open('deep/x').read())\n",
        {"files": files},
        {"execute/data.csv": "1", "execute/x": "2"},
        place={"data.csv": "execute/data.csv", "deep/x": "execute/x"},
    )

    assert done["stdout"] == "1 2\n"


def test_paths_that_lead_out_of_the_workspace_are_not_laid_out(stage: Stage) -> None:
    odd = {"../a": "x", "/etc/a": "x", "a//b": "x", "./a": "x", "a\0b": "x", "": "x", "k" * 300: "x"}
    kept = {"ok.txt": "x", "number": 5, "list": ["x"], "half": "\ud800"}

    done = stage.ran("import os\nprint(sorted(os.listdir()))\n", {"files": {**odd, **kept}})

    assert done["stdout"] == "['main.py', 'ok.txt']\n"


@pytest.mark.parametrize("files", [None, "text", ["a"], {"a": {"b": 1}}])
def test_an_output_without_usable_files_leaves_the_input_as_it_is(stage: Stage, files: object) -> None:
    done = stage.ran("import os\nprint(os.listdir())\n", {"files": files})

    assert done["stdout"] == "['main.py']\n"


def test_a_step_sees_no_answers_no_host_and_no_network(stage: Stage) -> None:
    source = (
        "import os, socket\n"
        "print(sorted(os.environ))\n"
        "found = [name for _, _, names in os.walk('/') for name in names if name == 'answer.txt']\n"
        "print(found, os.path.exists('execute'), os.path.exists('/var'), os.getuid())\n"
        "try:\n    socket.create_connection(('1.1.1.1', 53), 2)\nexcept OSError as error:\n"
        "    print('no network')\n"
    )

    done = stage.ran(source, None, {"execute/unnamed.txt": "x"})

    assert done["stdout"].splitlines() == [
        "['HOME', 'LC_ALL', 'PATH', 'PYTHONDONTWRITEBYTECODE', 'PYTHONHASHSEED', 'TMPDIR']",
        "[] False False 61002",
        "no network",
    ]


def test_files_of_an_agent_do_not_replace_the_program_of_a_step(stage: Stage) -> None:
    forged = "#!/bin/sh\necho forged\n"

    done = stage.ran("print('real')\n", {"files": {"python3": forged, "bin/python3": forged}})

    assert done["stdout"] == "real\n"


def test_a_program_that_is_not_there_is_not_started(stage: Stage) -> None:
    done = stage.ran("", argv=("no-such-program",))

    assert (done["end"], done["stdout"]) == ("not_started", "")


def test_a_program_that_is_killed_or_too_slow_says_so(stage: Stage) -> None:
    killed = stage.ran("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n")
    slow = stage.ran("import time\nprint('began', flush=True)\ntime.sleep(600)\n", seconds=2)

    assert killed["end"] == "signal:KILL"
    assert (slow["end"], slow["stdout"]) == ("timeout", "began\n")


def test_only_the_beginning_of_a_stream_is_taken_down(stage: Stage) -> None:
    done = stage.ran("print('x' * 1_000_000)\n")

    assert 0 < len(done["stdout"]) <= 64 * 1024
    assert set(done["stdout"]) == {"x"}


def test_traps_in_place_of_outputs_are_not_followed_and_not_waited_for(stage: Stage) -> None:
    source = (
        "import os\nos.symlink('/etc/passwd', 'link')\nos.mkfifo('pipe')\nos.mkdir('folder')\n"
        "os.symlink('/etc', 'linked')\nopen('large', 'w').truncate(2 << 20)\n"
        "open('binary', 'wb').write(b'\\xff')\nopen('plain', 'w').write('yes')\n"
    )
    asked = ["link", "pipe", "folder", "linked/passwd", "large", "binary", "plain"]

    done = stage.ran(source, outputs=asked)

    assert done["files"] == {**dict.fromkeys(asked), "plain": "yes"}


def test_every_step_has_a_fresh_box_and_nothing_of_the_step_before(stage: Stage) -> None:
    source = (
        "import os, subprocess, sys\nfor place in ('.', os.environ['HOME'], '/tmp', '/dev/shm'):\n"
        "    print(os.path.exists(place + '/left'))\n    open(place + '/left', 'w').write('x')\n"
        "subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
        "print(sum(name.isdigit() for name in os.listdir('/proc')))\n"
    )
    steps = [
        program_step("python3", "main.py", place={"main.py": "execute/main.py"}, name=name)
        for name in ("one", "two")
    ]

    done = stage.steps(steps, {"execute/main.py": source})

    assert done["one"] == done["two"]
    assert done["one"]["stdout"].splitlines()[:4] == ["False"] * 4


def test_a_value_of_the_harness_environment_is_redacted_in_what_is_taken_down(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MY_TOKEN", "hunter2-hunter2")

    async def executed() -> Execution:
        async with opened_bench() as bench:
            source = "def add(a, b):\n    print('hunter2-hunter2')\n    return 'hunter2-hunter2'\n"
            files = {"execute/calls.json": ADD}
            return (await bench.execute([calls_step()], files, {"files": {"calc.py": source}}))["values"]

    done = asyncio.run(executed())

    assert "hunter2" not in json.dumps(done)
    assert done["stdout"] == "[redacted]\n"
