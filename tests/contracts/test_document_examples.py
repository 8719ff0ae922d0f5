"""Examples of the documents run, and print what the pages show.

The fenced blocks of a page are taken in their order, in one directory that is empty at first, or holds a copy
of `bench/` if the page says `<!-- examples: beside a copy of bench/ -->`:

- "```<language> file=<path>" is written to that path, and so is a Python block that begins with a comment of
  nothing but `<name>.py`.
- "```python tested" is run, and has to exit with 0. "```sh" is a script of bash, and likewise.
- "```console" is one session of bash. Each line that begins with `$ ` is a command. It has to exit with 0 and
  to print the lines below it and no others. `…` stands for anything within a line, such as a run id, a time
  or a digest; a line of `…` stands for any lines. A command without lines below it may print anything.
- "```console not-run="<reason>"" cannot run in a test, for that reason; likewise `sh`.

On the pages for users no command may hide in a block of another language.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md"))]
PAGES_FOR_USERS = [ROOT / "README.md", *sorted((DOCS / "how-to").glob("*.md"))]
BESIDE_BENCHES = "<!-- examples: beside a copy of bench/ -->"

FENCE = re.compile(r"^```(?P<language>\w*)(?P<rest>[^\n]*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"\A(?:file=(?=\S)|\n# (?=\w+\.py\n))(\S+)")
NOT_RUN = re.compile(r'not-run="[^"]{10,}"')
HIDDEN = re.compile(r"^(?:\$ |(?:codegenie|make|git|pip|python3?|bash) |\.venv/)", re.MULTILINE)
# Ends what a command printed, with its exit code. No example prints it.
END = "=== end of a command: "
SECONDS = 300


def page_id(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@dataclass(frozen=True)
class Outcome:
    """What one example printed, line by line, and how it ended."""

    code: int
    lines: list[str]


def run(arguments: list[str], directory: Path) -> Outcome:
    """Run a program as a user would, with `codegenie` and `python3` on the path."""
    programs = directory / ".programs"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CODEGENIE_")}
    ended = subprocess.run(
        arguments,
        cwd=directory,
        env={**environment, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=SECONDS,
        check=False,
    )
    return Outcome(ended.returncode, ended.stdout.decode().rstrip("\n").split("\n"))


def pattern(shown: list[str]) -> str:
    """Return what the lines of a page stand for, as a regular expression."""
    parts = [
        "(?:[^\n]*\n)*?" if line == "…" else "[^\n]*".join(map(re.escape, line.split("…"))) + "\n"
        for line in shown
    ]
    return "".join(parts)


def differs(shown: list[str], printed: list[str]) -> bool:
    return bool(shown) and re.fullmatch(pattern(shown), "".join(f"{line}\n" for line in printed)) is None


def session(commands: list[str], directory: Path) -> list[Outcome]:
    """Run commands in one shell, and return what became of each."""
    script = "".join(f"{command}\nprintf '\\n{END}%d\\n' $?\n" for command in commands)
    printed = "\n".join(run(["bash", "-c", script], directory).lines)
    parts = re.split(rf"\n?{END}(\d+)\n?", printed)
    return [
        Outcome(int(code), text.removesuffix("\n").split("\n") if text else [])
        for text, code in zip(parts[::2], parts[1::2], strict=False)
    ]


def console_problems(body: str, directory: Path) -> Iterator[str]:
    parts = [part.rstrip("\n").split("\n") for part in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]]
    outcomes = session([command for command, *_ in parts], directory)
    for (command, *shown), outcome in zip(parts, outcomes, strict=True):
        if outcome.code != 0:
            yield f"{command}: exit {outcome.code}: {outcome.lines}"
        elif differs(shown, outcome.lines):
            yield f"{command}: prints {outcome.lines}, and not {shown}"


def block_problems(block: re.Match[str], directory: Path) -> Iterator[str]:
    language, rest, body = block["language"], block["rest"].strip(), block["body"]
    if NOT_RUN.fullmatch(rest):
        return
    if file := FILE.search(f"{rest}\n{body}"):
        path = directory / file[1]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(body, encoding="utf-8")
    elif language == "console":
        yield from console_problems(body, directory)
    elif language == "sh" or (language, rest) == ("python", "tested"):
        program = ["bash", "-euo", "pipefail", "-c"] if language == "sh" else [sys.executable, "-c"]
        outcome = run([*program, body], directory)
        if outcome.code != 0:
            yield f"exit {outcome.code}: {outcome.lines}"


def example_problems(text: str, directory: Path) -> Iterator[str]:
    if BESIDE_BENCHES in text:
        shutil.copytree(ROOT / "bench", directory / "bench")
    programs = directory / ".programs"
    programs.mkdir()
    for name, arguments in (("codegenie", "-m codegenie"), ("python3", "")):
        (programs / name).write_text(
            f'#!/bin/sh\nexec "{sys.executable}" {arguments} "$@"\n', encoding="utf-8"
        )
        (programs / name).chmod(0o755)
    for block in FENCE.finditer(text):
        yield from block_problems(block, directory)


def has_examples(page: Path) -> bool:
    blocks = FENCE.finditer(page.read_text(encoding="utf-8"))
    return any(block["language"] in {"console", "sh"} or "tested" in block["rest"] for block in blocks)


@pytest.mark.parametrize("page", [page for page in PAGES if has_examples(page)], ids=page_id)
def test_every_example_of_a_page_runs_and_prints_what_the_page_shows(page: Path, tmp_path: Path) -> None:
    # The user of root's boxes has to see an agent that is imported from there.
    tmp_path.chmod(0o755)
    assert list(example_problems(page.read_text(encoding="utf-8"), tmp_path)) == []


def hidden_commands(text: str) -> list[str]:
    blocks = [block for block in FENCE.finditer(text) if block["language"] not in {"console", "sh"}]
    return [line for block in blocks for line in block["body"].splitlines() if HIDDEN.match(line)]


def test_no_command_of_a_page_for_users_hides_in_a_block_that_is_not_run() -> None:
    found = {page_id(page): hidden_commands(page.read_text(encoding="utf-8")) for page in PAGES_FOR_USERS}

    assert {page: lines for page, lines in found.items() if lines} == {}
    assert hidden_commands("```\nmake demo\n```\n```text\n$ ls\n```\n```sh\nmake\n```") == [
        "make demo",
        "$ ls",
    ]


def test_an_example_that_is_wrong_is_found(tmp_path: Path) -> None:
    page = (
        "```console\n$ codegenie eval list\ndependency-pin  13 cases…\n"
        "$ said=2\n$ echo $said; echo 3\n2\n```\n"
        "```text file=y/x.txt\n1\n```\n```python\n# x.py\nx = open('y/x.txt').read()\n```\n"
        "```python tested\nimport x\nassert x.x == 2, x.x\n```\n"
        "```console\n$ codegenie eval run a --sut null\n```\n"
        '```sh not-run="a reason that is given"\nexit 1\n```\n```sh\nfalse\necho on\n```\n'
    )

    listed, echoed, tested, refused, failed = example_problems(page, tmp_path)

    assert listed.startswith("codegenie eval list: prints ['dependency-pin  12 cases")
    assert echoed == "echo $said; echo 3: prints ['2', '3'], and not ['2']"
    assert "AssertionError: 1" in tested
    assert refused.startswith("codegenie eval run a --sut null: exit 2")
    assert failed == "exit 1: ['']"


@pytest.mark.parametrize(
    ("shown", "printed", "is_wrong"),
    [
        (["a", "b"], ["a", "b"], False),
        (["a", "b"], ["a", "b", "c"], True),
        (["b", "a"], ["a", "b"], True),
        (["a", "…"], ["a"], False),
        (["a", "…", "d"], ["a", "b", "c", "d"], False),
        (["a", "…", "d"], ["a", "b", "c"], True),
        (["run … of 3"], ["run 20261116T070057Z of 3"], False),
        (["run … of 3"], ["run 20261116T070057Z of 4"], True),
        (["a.c"], ["abc"], True),
        ([], ["anything"], False),
    ],
)
def test_shown_lines_are_compared_in_order_and_to_the_end(
    shown: list[str], printed: list[str], is_wrong: bool
) -> None:
    assert differs(shown, printed) is is_wrong
