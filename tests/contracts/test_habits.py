"""Every static check of `make check` goes red on what it is there to find, and only then.

The checks themselves run in `make check`. Here each one meets a specimen that breaks it.
"""

import json
import shutil
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from scripts import audit_locks, check_dependencies, check_links, check_locks, run_checks
from scripts.locks import DEVELOPMENT, ROOT, entries

HASHES = " \\\n".join(f"    --hash=sha256:{digit * 64}" for digit in "01")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
TOOLS = Path(sys.executable).parent


# Checks as a whole.


def test_one_check_that_fails_fails_all_and_the_others_still_speak(
    capsys: pytest.CaptureFixture[str],
) -> None:
    checks = {
        "bad": (sys.executable, "-c", "print('what is wrong'); raise SystemExit(1)"),
        "good": (sys.executable, "-c", "print('what is right')"),
    }

    assert run_checks.run_all(checks) == ["bad"]
    assert capsys.readouterr().out == "bad: FAILED\nwhat is wrong\ngood: ok\nwhat is right\n"


def test_a_check_that_does_not_exist_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_checks.main(["spelling", "taste"]) == 2
    assert "no such check: taste" in capsys.readouterr().err


# Locks.


@pytest.fixture(scope="module")
def locks() -> check_locks.Locks:
    return check_locks.Locks.read()


def test_the_locks_are_in_order(locks: check_locks.Locks) -> None:
    assert list(check_locks.faults(locks)) == []


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("--index-url https://index.invalid/simple", "not a pinned and hashed requirement: --index-url"),
        ("-i https://index.invalid/simple", "not a pinned and hashed requirement: -i"),
        ("--find-links wheels", "not a pinned and hashed requirement: --find-links"),
        ("rich==15.0.0", "not a pinned and hashed requirement: rich==15.0.0"),
        (f"rich>=15 \\\n{HASHES}", "not a pinned and hashed requirement: rich>=15"),
        (f"rich @ file:///rich.whl \\\n{HASHES}", "not a pinned and hashed requirement: rich @"),
        (HASHES.replace("sha256", "md5"), "not a pinned and hashed requirement: --hash=md5"),
        (f"blake3==1.0.0 \\\n{HASHES}", "blake3 stands there twice"),
        (f"colorama==1.0.0 \\\n    --hash=sha256:{'0' * 64}", "colorama has one file only"),
        ("# from /wheels", "a comment names a place: # from /wheels"),
    ],
)
def test_a_line_that_no_lock_may_hold_is_found(locks: check_locks.Locks, line: str, problem: str) -> None:
    broken = replace(locks, runtime=f"{locks.runtime}\n{line}\n")

    assert any(problem in fault for fault in check_locks.form_faults("requirements.txt", broken.runtime))
    assert list(check_locks.faults(broken))


def without(lock: str, name: str) -> str:
    """Return a lock without one of its entries."""
    begin = lock.index(f"\n{name}==") + 1
    end = next(place for place in range(begin, len(lock)) if lock[place] == "\n" and lock[place - 1] != "\\")
    return lock[:begin] + lock[end + 1 :]


def test_locks_that_do_not_agree_with_each_other_are_found(locks: check_locks.Locks) -> None:
    entry = entries(locks.development)["click"]
    other_version = locks.development.replace(f"click=={entry.version}", "click==8.1.99")
    other_hash = locks.development.replace(entry.hashes[0], "0" * 64)

    for text in (other_version, other_hash, without(locks.development, "click")):
        found = list(check_locks.faults(replace(locks, development=text)))
        assert "requirements-dev.txt: click is not what requirements.txt holds" in found


def test_locks_that_do_not_agree_with_what_is_declared_are_found(locks: check_locks.Locks) -> None:
    missing = replace(locks, runtime=without(locks.runtime, "numpy"))
    unwanted = locks.runtime.replace("numpy==2", "numpy==1")
    surplus = replace(locks, runtime=f"{locks.runtime}left-over==1.0 \\\n{HASHES}\n")

    assert "requirements.txt: numpy is declared and not locked" in list(check_locks.faults(missing))
    found = list(check_locks.faults(replace(locks, runtime=unwanted)))
    assert [fault for fault in found if "but numpy<3,>=2.0 is declared" in fault]
    assert "requirements.txt: left-over is locked, and nothing needs it" in list(check_locks.faults(surplus))


def test_a_makefile_that_installs_without_hashes_or_builds_is_found(locks: check_locks.Locks) -> None:
    lax = replace(locks, makefile=locks.makefile.replace(" --only-binary :all:", ""))

    assert list(check_locks.faults(lax)) == [
        "Makefile: it may install what has no hash, or build what has no wheel"
    ]


@contextmanager
def database(answer: dict[str, Any]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Serve one answer on this machine; yield the address and the questions that came."""
    questions: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            questions.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(answer).encode())

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/", questions
        finally:
            server.shutdown()
            thread.join()


def test_an_audit_asks_about_every_locked_version_and_names_a_known_hole(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    lock = entries(DEVELOPMENT.read_text(encoding="utf-8"))
    results: list[dict[str, Any]] = [{} for _ in lock]
    with database({"results": results}) as (address, questions):
        assert audit_locks.main(address) == 0
    results[list(lock).index("click")] = {"vulns": [{"id": "PYSEC-2099-1"}]}
    with database({"results": results}) as (address, _):
        assert audit_locks.main(address) == 1

    assert len(questions[0]["queries"]) == len(lock)
    assert f"click {lock['click'].version}: PYSEC-2099-1" in capsys.readouterr().out


@pytest.mark.parametrize("answer", [{"results": []}, {}], ids=["about fewer packages", "about none"])
def test_an_answer_that_does_not_cover_the_lock_is_not_a_clean_one(
    answer: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with database(answer) as (address, _):
        assert audit_locks.main(address) == 2


# Dependencies.


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a small checkout whose imports, declarations and page agree."""
    files = {
        "pyproject.toml": """\
[project]
dependencies = ["click>=8"]
[project.optional-dependencies]
dev = ["pytest", "pytest-asyncio", "ruff"]
[tool.pytest.ini_options]
asyncio_mode = "strict"
""",
        "Makefile": "check:\n\truff check\n",
        "scripts/run_checks.py": "import sys\n",
        "src/codegenie/__init__.py": "import json\nimport click\nfrom codegenie import eval\n",
        "tests/test_it.py": "import pytest\nfrom tests import helper\n",
        "tests/fixtures/bench/rubric.py": "import codegenie_rubric\n",
        "benchmarks/__init__.py": "import click\n",
        check_dependencies.PAGE: "".join(
            f"| `{name}` | because |\n" for name in ("click", "pytest", "pytest-asyncio", "ruff")
        ),
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def test_a_checkout_whose_dependencies_agree_is_clean(checkout: Path) -> None:
    assert list(check_dependencies.faults(checkout)) == []


@pytest.mark.parametrize(
    ("name", "old", "new", "fault"),
    [
        (
            "src/codegenie/__init__.py",
            "import json",
            "def f():\n    import numpy.linalg",
            "src/codegenie/__init__.py: imports numpy, which is not declared",
        ),
        (
            "src/codegenie/__init__.py",
            "import json",
            "from pytest import fixture",
            "src/codegenie/__init__.py: imports pytest, which is not declared",
        ),
        (
            "src/codegenie/__init__.py",
            "import click",
            "",
            "pyproject.toml: click is declared, and nothing uses it",
        ),
        (
            "tests/test_it.py",
            "from tests",
            "import nowhere\nfrom tests",
            "tests/test_it.py: imports nowhere, which is not declared",
        ),
        ("Makefile", "ruff", "true", "pyproject.toml: ruff is declared, and nothing uses it"),
        (
            "pyproject.toml",
            'asyncio_mode = "strict"',
            "",
            "pyproject.toml: pytest-asyncio is declared, and nothing uses it",
        ),
        (check_dependencies.PAGE, "| `ruff` |", "| ruff |", f"{check_dependencies.PAGE}: ruff has no line"),
        (
            check_dependencies.PAGE,
            "| `ruff` |",
            "| `rich` | why |\n| `ruff` |",
            f"{check_dependencies.PAGE}: rich has a line and is not declared",
        ),
    ],
)
def test_a_dependency_that_does_not_agree_is_found(
    checkout: Path, name: str, old: str, new: str, fault: str
) -> None:
    text = (checkout / name).read_text(encoding="utf-8")
    (checkout / name).write_text(text.replace(old, new), encoding="utf-8")

    assert list(check_dependencies.faults(checkout)) == [fault]


# Links.


def test_a_link_that_leads_nowhere_is_found_wherever_it_stands() -> None:
    missing = "9999"
    text = """\
# One page
[a](index.md) [b](gone.md) [c](index.md#not-yet) [d](index.md#gone) [e](https://host.invalid/) [f](#one-page)
[g](#two-pages) ![h](picture.png "title") [i](../../outside.md) [j](<index.md>) [k][label] `[l](code.md)`

[label]: defined.md

```
[m](example.md)
```
ADR-0001 and ADR-{missing}
""".replace("{missing}", missing)

    assert list(check_links.dead_links(ROOT / "docs" / "x.md", text)) == [
        "gone.md: no such file",
        "index.md#gone: no such heading",
        "#two-pages: no such heading",
        "picture.png: no such file",
        "../../outside.md: no such file",
        "defined.md: no such file",
        f"ADR-{missing}: no such decision",
    ]


def test_a_heading_that_stands_twice_has_two_anchors() -> None:
    text = "# The [log](log.md)\n## The `log`\n```\n# not a heading\n```\n### Ends, and does not: so\n"

    assert check_links.anchors(text) == {"the-log", "the-log-1", "ends-and-does-not-so"}


def test_the_documents_that_are_looked_at_are_all_but_those_of_cases() -> None:
    found = {page.relative_to(ROOT).as_posix() for page in check_links.pages()}

    assert {"README.md", "docs/index.md", "benchmarks/RESULTS.md"} <= found
    assert {name for name in found if "/cases/" in name} == set()


# Dead code and spelling: tools that others made, with settings of ours.


def run_tool(name: str, *arguments: str, cwd: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [str(TOOLS / name), *arguments], cwd=cwd, capture_output=True, text=True, timeout=120, check=False
    )


def test_code_that_nothing_uses_is_found(tmp_path: Path) -> None:
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for name in PROJECT["tool"]["vulture"]["paths"]:
        (tmp_path / name).mkdir()
    (tmp_path / "src/room.py").write_text("def used():\n    pass\n\n\nused()\n", encoding="utf-8")
    assert run_tool("vulture", cwd=tmp_path).returncode == 0
    (tmp_path / "src/room.py").write_text("def forgotten():\n    pass\n", encoding="utf-8")

    done = run_tool("vulture", cwd=tmp_path)

    assert done.returncode != 0
    assert "unused function 'forgotten'" in done.stdout


def test_every_name_that_may_look_unused_still_does() -> None:
    done = run_tool("vulture", "--ignore-names", "", *PROJECT["tool"]["vulture"]["paths"], cwd=ROOT)

    stale = [name for name in PROJECT["tool"]["vulture"]["ignore_names"] if f"'{name}'" not in done.stdout]
    assert stale == []


def test_a_word_that_is_not_spelled_so_is_found(tmp_path: Path) -> None:
    misspelled = "rec" + "ieves"
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "page.md").write_text("What the agent receives.\n", encoding="utf-8")
    assert run_tool("codespell", "page.md", cwd=tmp_path).returncode == 0
    (tmp_path / "page.md").write_text(f"What the agent {misspelled}.\n", encoding="utf-8")

    done = run_tool("codespell", "page.md", cwd=tmp_path)

    assert done.returncode != 0
    assert f"{misspelled} ==> receives" in done.stdout
