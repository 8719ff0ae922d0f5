"""What is known of an agent that hung, was killed or raised: all it printed, what it raised and where."""

import asyncio
import os
from pathlib import Path

import pytest

from codegenie.eval.errors import SutSpecInvalid
from codegenie.eval.limits import LIMITS
from codegenie.eval.ports import SutAnswer, SutCase, SutFault
from codegenie.eval.sanitising import Redactor
from codegenie.eval.suts.python import PythonSut
from codegenie.eval.suts.raised import MESSAGE_CHARACTERS, OwnCode, Raised
from codegenie.eval.suts.result_reader import fault_of

HEAD = "import json, os, signal, sys, time\n\ndef solve(case):\n"
"""What comes next is line 4 of agent.py."""


def asked(directory: Path, body: str, seconds: float = 120.0, head: str = HEAD) -> SutAnswer | SutFault:
    """Ask an agent whose function has this body."""
    source = head + "".join(f"    {line}\n" for line in body.splitlines())
    (directory / "agent.py").write_text(source, encoding="utf-8")
    (directory / "room" / "input").mkdir(parents=True, exist_ok=True)
    case = SutCase("one", "a-class", str(directory / "room" / "input"), 0)

    async def ask() -> SutAnswer | SutFault:
        sut = PythonSut("agent:solve")
        try:
            await sut.prepare()
            return await sut.ask(case, seconds)
        finally:
            await sut.close()

    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(directory)
        return asyncio.run(ask())


def detail(directory: Path, body: str, head: str = HEAD) -> str:
    fault = asked(directory, body, head=head)
    assert isinstance(fault, SutFault)
    assert fault.code == "sut.exception"
    return fault.detail


@pytest.mark.parametrize(
    ("end", "code"),
    [
        ("time.sleep(3600)", "sut.timeout"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "sut.exception"),
        ("os._exit(3)", "sut.exception"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "sut.exception"),
    ],
    ids=["hangs", "is killed", "leaves at once", "crashes"],
)
def test_what_an_agent_printed_is_kept_however_it_ends(tmp_path: Path, end: str, code: str) -> None:
    printed = "print('a line')\nsys.stdout.write('half a')\nsys.stdout.buffer.write(b' line')\n"
    fault = asked(tmp_path, printed + end, seconds=3.0)

    assert isinstance(fault, SutFault)
    assert (fault.code, fault.log) == (code, b"a line\nhalf a line")


RAISED = {
    "a message of several lines": (
        "raise ValueError('1 error for Config\\n  name\\nFor further information visit a page')",
        "ValueError: 1 error for Config name For further information visit a page (agent.py:4)",
    ),
    "notes": (
        "error = KeyError('name')\nerror.add_note('look elsewhere')\nraise error",
        "KeyError: 'name' (agent.py:6)",
    ),
    "a cause": (
        "try:\n    json.loads('{')\nexcept ValueError as error:\n    raise RuntimeError('lost') from error",
        "RuntimeError: lost (agent.py:7)",
    ),
    "words printed after it": (
        (
            "import atexit, threading\n"
            "threading.Thread(target=lambda: (time.sleep(0.2), print('bye')), daemon=True).start()\n"
            "raise ValueError('before')"
        ),
        "ValueError: before (agent.py:6)",
    ),
    "raised in a library": (
        "return json.loads('{')",
        (
            "JSONDecodeError: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"
            " (agent.py:4)"
        ),
    ),
    "a group": (
        "raise ExceptionGroup('two', [ExceptionGroup('one', [ValueError('first')]), KeyError('second')])",
        "ExceptionGroup: two (2 sub-exceptions): ValueError: first (agent.py:4)",
    ),
    "a text that raises": (
        "class Mute(Exception):\n    def __str__(self):\n        sys.exit('no')\nraise Mute",
        "Mute: (its message cannot be shown) (agent.py:7)",
    ),
    "a class that lies about its name": (
        (
            "class Kind(type):\n    @property\n    def __name__(cls):\n        sys.exit('no')\n"
            "class Named(Exception, metaclass=Kind):\n    pass\nraise Named('hello')"
        ),
        "Named: hello (agent.py:10)",
    ),
    "half a character": ("raise ValueError('a' + chr(0xD800))", "ValueError: a? (agent.py:4)"),
    "no memory": ("raise MemoryError", "MemoryError (agent.py:4)"),
    "a word for the shell": ("sys.exit('bye')", "SystemExit: bye (agent.py:4)"),
    "a number for the shell": ("sys.exit(3)", "SystemExit: 3 (agent.py:4)"),
    "no depth": ("return solve(case)", "RecursionError: maximum recursion depth exceeded (agent.py:4)"),
    "a syntax error in data": (
        "compile('1 +', '<data>', 'exec')",
        "SyntaxError: invalid syntax (agent.py:4)",
    ),
    "steering": ("raise ValueError('\\x1b[2J')", "ValueError: \N{REPLACEMENT CHARACTER}[2J (agent.py:4)"),
    "a broken hook": (
        "sys.excepthook = lambda *_: sys.exit(0)\nraise ValueError('hooked')",
        "ValueError: hooked (agent.py:5)",
    ),
}


@pytest.mark.parametrize("how", RAISED)
def test_an_exception_is_told_by_type_message_file_and_line(tmp_path: Path, how: str) -> None:
    body, said = RAISED[how]

    assert detail(tmp_path, body) == said


def test_the_place_is_in_the_agents_own_code_and_not_in_what_it_installed(tmp_path: Path) -> None:
    installed = tmp_path / ".venv" / "lib" / "site-packages"
    for directory, name, text in (
        (installed, "library.py", "def fail():\n    raise OSError('library')\n"),
        (tmp_path / "tools", "__init__.py", ""),
        (tmp_path / "tools", "inner.py", "import library\n\n\ndef work():\n    library.fail()\n"),
    ):
        directory.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(text)
    body = f"sys.path.append({str(installed)!r})\nfrom tools import inner\ninner.work()"

    assert detail(tmp_path, body) == "OSError: library (tools/inner.py:5)"


def test_a_long_message_leaves_room_for_the_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The end of a cut message may be the beginning of a value of the environment, and as much is left out as
    # the longest value has. One that a measuring tool sets is longer than the whole message.
    for name, value in tuple(os.environ.items()):
        if len(value) > LIMITS.text_characters:
            monkeypatch.delenv(name)
    said = detail(tmp_path, "raise ValueError('x' * 5_000_000)")

    assert len(said) == LIMITS.detail_characters
    assert said.startswith("ValueError: xxx")
    assert said.endswith("x… (agent.py:4)")


@pytest.mark.parametrize("before", [0, 150, MESSAGE_CHARACTERS - 12])
def test_no_part_of_a_secret_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: int) -> None:
    secret = "correct-horse-battery-staple"
    monkeypatch.setenv("SERVICE_TOKEN", secret)
    said = detail(tmp_path, f"raise ValueError(' x' * {before // 2} + ' {secret}')")

    assert not [n for n in range(len(secret) - 8) if secret[n : n + 8] in said]


def test_a_cut_message_may_hold_half_a_secret_behind_what_was_redacted() -> None:
    secret = "s3cret-" * 600
    redactor = Redactor({"SERVICE_TOKEN": secret})
    fault = fault_of(Raised("ValueError", secret[:MESSAGE_CHARACTERS], "agent.py:4"), redactor)

    assert fault.detail == "ValueError (agent.py:4)"


@pytest.mark.parametrize(
    "told",
    ["not json", '["ValueError"]', '{"type": 1, "message": "", "place": "", "returned_nothing": false}'],
)
def test_a_report_that_the_agent_wrote_itself_is_read_strictly(tmp_path: Path, told: str) -> None:
    assert detail(tmp_path, f"os.write(4, {told.encode()!r})\nprint('last')\nos._exit(3)") == "exit:3: last"


def test_a_report_of_an_exception_takes_no_result_away(tmp_path: Path) -> None:
    forged = Raised("ValueError", "no", "agent.py:1").encoded()
    answer = asked(tmp_path, f"os.write(4, {forged!r})\nreturn {{'answer': 1}}")

    assert isinstance(answer, SutAnswer)
    assert answer.output == b'{"answer":1}'


IMPORTS = {
    "its own syntax": ("x = (\n", "SyntaxError: '(' was never closed (agent.py:1)"),
    "the syntax of a helper": ("import helper\n", "SyntaxError: invalid syntax (helper.py:2)"),
    "a missing library": (
        "\nimport not_there\n",
        "ModuleNotFoundError: No module named 'not_there' (agent.py:2)",
    ),
    "an exit": ("raise SystemExit('not today')\n", "SystemExit: not today (agent.py:1)"),
    "the wrong name": ("x = 1\n", "AttributeError: module 'agent' has no attribute 'solve'"),
}


@pytest.mark.parametrize("how", IMPORTS)
def test_an_agent_that_cannot_be_imported_says_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    source, said = IMPORTS[how]
    (tmp_path / "agent.py").write_text(source)
    (tmp_path / "helper.py").write_text("x = 1\ny = = 2\n")

    async def prepare() -> None:
        sut = PythonSut("agent:solve")
        try:
            await sut.prepare()
        finally:
            await sut.close()

    monkeypatch.chdir(tmp_path)
    with pytest.raises(SutSpecInvalid) as refusal:
        asyncio.run(prepare())
    assert refusal.value.message == f"cannot import python:agent:solve: {said}"


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("/work/agent.py", "agent.py:7"),
        ("/work/tools/deep.py", "tools/deep.py:7"),
        ("/lib/site-packages/agents/own.py", "agents/own.py:7"),
        ("/lib/site-packages/agents/other.py", "agents/other.py:7"),
        ("/lib/site-packages/requests/api.py", None),
        ("/work/.venv/lib/site-packages/requests/api.py", None),
        (os.__file__, None),
        ("<string>", None),
    ],
)
def test_files_of_the_package_and_of_the_working_directory_are_its_own(path: str, place: str | None) -> None:
    own = OwnCode("/work", "/lib/site-packages/agents/own.py")

    assert own.place(path, 7) == place
