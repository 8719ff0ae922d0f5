"""Benches that break one rule of the fence each, and benches that only look as if they did."""

import os
from pathlib import Path

from tests.support.fence import LIVE_KEYS, SILVER
from tests.support.stub_benches import (
    CASE,
    CASES,
    Edit,
    appended,
    digested,
    in_place_of,
    in_turn,
    link,
    prepended,
    removed,
    replaced,
    sparse,
    written,
)

INPUT = f"cases/{CASE}/input"
TOML = f"cases/{CASE}/case.toml"
LFS = "version https://git-lfs.github.com/spec/v1\noid sha256:" + "0" * 64 + "\nsize 12\n"
RLO = "\N{RIGHT-TO-LEFT OVERRIDE}"
MARKS = "a" + "\N{COMBINING COMMA ABOVE RIGHT}" * 20 + "\N{COMBINING GRAVE ACCENT}" * 20
DECOMPOSED = "cafe\N{COMBINING ACUTE ACCENT}"
COMPOSED = "caf\N{LATIN SMALL LETTER E WITH ACUTE}"
MIXED = "p\N{CYRILLIC SMALL LETTER A}ssed"


def put(path: str, content: str | bytes = "x\n") -> Edit:
    """Return an edit that makes a file, and the directories above it."""

    def edit(bench: Path) -> None:
        (bench / path).parent.mkdir(parents=True, exist_ok=True)
        written(path, content)(bench)

    return edit


def mode(path: str, bits: int) -> Edit:
    return lambda bench: (bench / path).chmod(bits)


def families(*names: str) -> Edit:
    """Give the cases these families, in order."""
    return in_turn(
        *(
            appended(f"cases/{case}/case.toml", f'family = "{name}"\n')
            for case, name in zip(CASES, names, strict=True)
        )
    )


def more_cases(count: int) -> Edit:
    """Add cases, each a family of its own and held out."""

    def edit(bench: Path) -> None:
        text = (bench / TOML).read_text(encoding="utf-8")
        for number in range(count):
            put(f"cases/more_{number}/case.toml", text.replace(CASE, f"more_{number}"))(bench)

    return edit


def entry(*lines: str) -> Edit:
    return appended("failure_modes.yaml", "".join(f"{line}\n" for line in lines))


def step(*lines: str) -> Edit:
    """Return an edit that gives the case a step."""
    return appended(TOML, "\n".join(["", "[[execute]]", 'name = "one"', *lines, ""]))


def key(value: str) -> Edit:
    return appended("breakdown_keys.py", f"    MORE = {value}\n")


BROKEN: dict[str, dict[str, Edit]] = {
    "F001": {
        "no README": removed("README.md"),
        "no rubric": removed("rubric.py"),
        "a case without a head": digested(removed(TOML)),
    },
    "F002": {
        "a note beside the files": put("notes.txt"),
        "a folder beside the files": put("docs/x.md"),
        "a file among the cases": put("cases/notes.txt"),
        "a file beside the parts of a case": digested(put(f"cases/{CASE}/notes.txt")),
    },
    "F003": {
        "a link in a case": link(f"{INPUT}/x", "/etc/passwd"),
        "a README that is a link": in_place_of("README.md", lambda path: path.symlink_to("/etc/passwd")),
        "a pipe for a README": in_place_of("README.md", os.mkfifo),
        "a second name": lambda bench: os.link(bench / "rubric.py", bench.parent / "second"),
        "a README of a tebibyte": in_place_of("README.md", sparse(1 << 40)),
        "an escape in a name": put(f"{INPUT}/\x1b[2J"),
    },
    "F004": {
        name: put(name)
        for name in (
            "conftest.py",
            "sitecustomize.py",
            "__init__.py",
            "x.pth",
            "x.so",
            "x.pyc",
            "__pycache__/x",
            "requirements.txt",
            "pyproject.toml",
            "setup.cfg",
            "tox.ini",
            "pytest.ini",
            ".pre-commit-config.yaml",
            ".gitattributes",
            ".gitmodules",
            ".github/workflows/x.yml",
            "Makefile",
            f"{INPUT}/.gitattributes",
            f"{INPUT}/.GitAttributes",
            "Conftest.py",
            f"{INPUT}/deep/.gitmodules",
        )
    },
    "F005": {
        "a conftest in a case": digested(put(f"{INPUT}/tests/conftest.py")),
        "a path file in a case": digested(put(f"{INPUT}/x.pth")),
        "compiled code in a case": digested(put(f"{INPUT}/x.so")),
    },
    "F006": {
        "an executable rubric": mode("rubric.py", 0o755),
        "executable for others only": mode("README.md", 0o645),
        "an executable library": in_turn(put("rubric_lib/x.py"), mode("rubric_lib/x.py", 0o744)),
        "executable digests": mode("cases/digests.yaml", 0o755),
        "an executable head": digested(mode(TOML, 0o755)),
    },
    "F007": {
        "compiled code": put("rubric_lib/x.pyc"),
        "a cache": put("rubric_lib/__pycache__/x.txt"),
        "a library": put("rubric_lib/deep/x.so"),
    },
    "F008": {"a name in capitals": lambda bench: bench.rename(bench.parent / "Stub")},
    "F010": {
        "code": appended("registration.py", "import os\n"),
        "a computed minimum": replaced("registration.py", '"bronze": 3', '"bronze": 1 + 2'),
    },
    "F011": {
        "a word in the wrong place": appended("rubric.py", "def broken(:\n"),
        "a block that is not indented": put("rubric_lib/deep/x.py", "if True:\npass\n"),
        "a return in no function": appended("rubric.py", "return 1\n"),
        "half a bracket": put("rubric_lib/x.py", "x = (\n"),
        "nested too deeply": put("rubric_lib/x.py", "x = " + "-" * 500_000 + "1\n"),
        "a chain that is too long": put("rubric_lib/x.py", "x = " + "+".join(["y"] * 100_000) + "\n"),
        "a name of another module's syntax": put("rubric_lib/x.py", "print 'hello'\n"),
    },
    "F012": {
        **{
            line: appended("rubric.py", f"\n{line}\n")
            for line in (
                "exec('x')",
                "value = eval",
                "compile('x', 'x', 'exec')",
                "__import__('x')",
                "import subprocess",
                "if passed: import runpy",
                "import json, importlib.util as i",
                "from ctypes import CDLL",
                "import os; os.system('x')",
                "os . execvp('x', ['x'])",
                "from os import (path, posix_spawn as p)",
                "import builtins; builtins.exec('x')",
                "from builtins import eval as e",
                "import marshal, pickle",
                "import numpy",
            )
        },
        "in the library": put("rubric_lib/deep/x.py", "def f():\n    import subprocess\n"),
    },
    "F020": {"a computed key": key('"a" + "b"'), "a call": appended("breakdown_keys.py", "print('x')\n")},
    "F021": {
        "as written": key('"llm_confidence"'),
        "separators": key('"con_fi.dence"'),
        "a Cyrillic o": key('"c\N{CYRILLIC SMALL LETTER O}nfidence"'),
        "a Greek omicron": key('"c\N{GREEK SMALL LETTER OMICRON}nfidence"'),
        "fullwidth": key('"\N{FULLWIDTH LATIN SMALL LETTER L}lm_score"'),
        "a ligature": key('"con\N{LATIN SMALL LIGATURE FI}dence"'),
        "zero width": key('"conf\N{ZERO WIDTH SPACE}idence"'),
        "an accent": key('"model_s\N{LATIN SMALL LETTER A WITH ACUTE}ys"'),
        "several at once": key('"s\N{CYRILLIC SMALL LETTER IE}lf-R\N{CYRILLIC SMALL LETTER IE}ported"'),
        "an invisible character in a short word": key('"l\N{ZERO WIDTH SPACE}lm"'),
        "a palochka": key('"l\N{CYRILLIC SMALL LETTER PALOCHKA}m"'),
    },
    "F030": {
        "a severity of its own": entry("a.b: {severity: critical, description: d}"),
        "no description": entry("a.b: {severity: warn}"),
        "no YAML": entry("a: b: c"),
    },
    "F031": {
        "a code lowered": replaced("failure_modes.yaml", "block", "info"),
        "a code left out": replaced("failure_modes.yaml", "sut.timeout:", "timeout:"),
        "a code borrowed": entry("rubric.late: {severity: block, description: d}"),
    },
    "F040": {
        "fewer than asked for": replaced("registration.py", '"bronze": 3', '"bronze": 4'),
        "none": in_place_of("cases", lambda path: path.mkdir()),
    },
    "F041": {"three held-out cases": SILVER},
    "F042": {"three units": SILVER, "one unit": digested(SILVER, families("a", "a", "a"))},
    "F050": {"a capital": lambda bench: (bench / "cases" / CASE).rename(bench / "cases/Adds")},
    "F051": {
        "a field too many": digested(appended(TOML, "weight = 2\n")),
        "another id": digested(replaced(TOML, f'"{CASE}"', '"other"')),
        "a step without its file": digested(
            step('kind = "program"', 'argv = ["x"]', 'stdin = "execute/no.txt"')
        ),
        "calls that cannot be made": digested(
            step('kind = "python-calls"', 'module = "m"', 'calls = "execute/calls.json"'),
            put(f"cases/{CASE}/execute/calls.json", "[]"),
        ),
        "a step of no kind": digested(step('kind = "shell"')),
    },
    "F052": {"a pointer": digested(put(f"{INPUT}/model.bin", LFS))},
    "F053": {
        argv: digested(step('kind = "program"', f"argv = {argv}"))
        for argv in (
            '["python3", "-m", "pytest", "-q"]',
            '["/usr/bin/pytest"]',
            '["python3", "-m", "unittest.main"]',
            '["go", "test", "./..."]',
            '["cargo", "test"]',
            '["sh", "-c", "tox -e py"]',
        )
    },
    "F060": {"no digest": replaced("cases/digests.yaml", "blake3:", "sha256:")},
    "F061": {"an edited case": appended(f"cases/{CASE}/expected/answer.txt", "\n")},
    "F062": {"no entry": more_cases(1), "no list": removed("cases/digests.yaml")},
    "F063": {"no case": appended("cases/digests.yaml", f"gone: blake3:{'0' * 64}\n")},
    "F070": {
        "an override in the rubric": appended("rubric.py", f"# {RLO}\n"),
        "a zero-width space in the README": appended("README.md", "a\N{ZERO WIDTH SPACE}b\n"),
        "an isolate in a description": entry(
            "a.b: {severity: warn, description: 'x\N{LEFT-TO-RIGHT ISOLATE}'}"
        ),
        "an escape in a comment": appended("registration.py", "# \x1b[2J\n"),
        "a return that is no line end": appended("README.md", "good\rbad\n"),
        "a byte order mark in a case": digested(
            prepended(f"{INPUT}/question.txt", "\N{ZERO WIDTH NO-BREAK SPACE}")
        ),
        "tags in a case": digested(appended(f"{INPUT}/question.txt", "\U000e0031\U000e0042")),
        "a filler": appended("README.md", "\N{HANGUL FILLER}"),
        "smuggled selectors": digested(appended(f"{INPUT}/question.txt", "\U000e0105")),
        "tags as attributes are not excused": appended("README.md", "\N{LANGUAGE TAG}"),
        "in a comment of case.toml": digested(appended(TOML, f"# {RLO}\n")),
        "in the digests": appended("cases/digests.yaml", f"# {RLO}\n"),
    },
    "F071": {
        "a run of marks": digested(put(f"{INPUT}/a", MARKS)),
        "in the README": appended("README.md", DECOMPOSED),
        "in a case": digested(put(f"{INPUT}/a", DECOMPOSED)),
    },
    "F072": {
        "in the rubric": appended("rubric.py", f"\n{MIXED} = 1\n"),
        "in the library": put("rubric_lib/x.py", f"def {MIXED}():\n    pass\n"),
        "in a case": digested(put(f"{INPUT}/x.py", f"{MIXED} = 1\n")),
        "in a file that is no Python": digested(put(f"{INPUT}/x.py", f"((( {MIXED}\n")),
        "folded by Python": appended("rubric.py", "\n\N{LATIN SMALL LIGATURE FI}t = 1\n"),
    },
    "F073": {
        "a binary README": written("README.md", b"\x89PNG\0\0"),
        "a rubric in Latin-1": appended("rubric.py", b"# \xe9\n"),
        "a rubric in UTF-7": prepended("rubric.py", "# coding: utf-7\n# +AAo-import os\n"),
        "a library that is data": put("rubric_lib/x.bin", b"\0\1\2"),
    },
    "F080": {
        kind: digested(put(f"{INPUT}/settings.txt", f"token: {value}\n")) for kind, value in LIVE_KEYS.items()
    },
}

VERY_LONG = "a very long rubric"
BENIGN: dict[str, Edit] = {
    "the stub as it is": lambda _bench: None,
    "data with the names of tools": digested(
        *(put(f"{INPUT}/{name}") for name in ("pyproject.toml", "setup.cfg", "requirements.txt", "Makefile")),
        put(f"{INPUT}/tests/test_x.py"),
        put(f"{INPUT}/.github/workflows/x.yml"),
        put(f"{INPUT}/.gitignore"),
    ),
    "an executable file that a case is about": digested(
        put(f"{INPUT}/run.sh"), mode(f"{INPUT}/run.sh", 0o755)
    ),
    "a rubric that would fail as soon as it ran": in_turn(
        put("rubric_lib/x.py", "import json.not_there\nraise SystemExit(not_defined)\n"),
        prepended("rubric.py", "import os; os._exit(3)\n"),
    ),
    "a rubric with words that only look like code being run": in_turn(
        put("rubric_lib/x.py", "from . import y\nfrom rubric_lib import y\nimport y\n"),
        put("rubric_lib/y.py", "from __future__ import annotations\nimport re, os.path\n"),
        appended(
            "rubric.py",
            "\nimport re\nre.compile('eval(x)')\n# import subprocess\nTEXT = 'import subprocess'\n"
            "def f(system, compile=None): return system.exec(compile=1) and system.popen\n",
        ),
    ),
    "steps that are as they should be": digested(
        step('kind = "program"', 'argv = ["python3", "-I", "main.py", "latest"]', 'stdin = "execute/in.txt"'),
        put(f"cases/{CASE}/execute/in.txt"),
    ),
    "a rubric that warns": appended("rubric.py", 'X = "\\d" is 1\n'),
    "code that does not compile and is no part of the rubric": digested(
        put(f"{INPUT}/x.py", "def broken(:\n"), put("rubric_lib/x.py.txt", "def broken(:\n")
    ),
    "a long rubric": put("rubric_lib/x.py", "def f():\n    return 1\n" * 2_000),
    VERY_LONG: put("rubric_lib/x.py", "def f():\n    return 1\n" * 20_000),
    "a rubric in several files": put("rubric_lib/deep/x.py", "X = 1\n"),
    "a file in a case that is no text": digested(put(f"{INPUT}/x.png", b"\x89PNG\0\xff")),
    "text of the world": in_turn(
        appended("README.md", f"{COMPOSED}, \u4e2d\u6587, \u043a\u043e\u0434, \N{WHITE HEAVY CHECK MARK}\n"),
        appended("rubric.py", "# a note about \u043a\u043e\u0434 and 3 \N{GREEK SMALL LETTER MU}s\n"),
        put("rubric_lib/x.py", f'{COMPOSED} = "{MIXED}"  # {MIXED}\n\u043a\u043e\u0434 = 1\n'),
    ),
    "emoji with a selector": appended("README.md", "\N{HEAVY BLACK HEART}\N{VARIATION SELECTOR-16}\n"),
    "Windows line ends": digested(put(f"{INPUT}/x.txt", "a\r\nb\r\n"), put("README.md", "a\r\nb\r\n")),
    "keys that only look banned": in_turn(key('"all_metrics"')),
    "a key that is not alive": digested(
        put(
            f"{INPUT}/x.txt",
            "AKIAIOSFODNN7EXAMPLE ghp_short sk-ant-canary xoxb-1 -----BEGIN CERTIFICATE-----\nAIza hf_x",
        )
    ),
    "a tier with all that it needs": digested(
        replaced("registration.py", '"bronze": 3', '"silver": 3, "bronze": 14'), more_cases(11)
    ),
    "text that mentions a pointer": digested(put(f"{INPUT}/x.txt", f"see:\n{LFS}")),
}
