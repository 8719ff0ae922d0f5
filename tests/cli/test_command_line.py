"""The edges of the command line: settings, broken pipes, full disks, and what is not ours."""

import json
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from codegenie import __version__
from codegenie.eval import cli
from codegenie.eval.cli import list_command, run_command_line
from codegenie.eval.errors import BenchCaseLoadError
from tests.support.commands import SOURCES, call, environment, eval_argv
from tests.support.stub_benches import NAME, copy_stub

Capture = pytest.CaptureFixture[str]
COMMAND = (sys.executable, "-m", "codegenie")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    copy_stub(tmp_path / "bench")
    return tmp_path


def listed(capsys: Capture, *arguments: str) -> list[str]:
    assert run_command_line(["eval", "list", *arguments, "--json"]) == 0
    entries = json.loads(capsys.readouterr().out)["task_classes"]
    return [entry["name"] for entry in entries if not entry["shipped"]]


@pytest.mark.parametrize(
    "arguments", [["--help"], ["-h"], ["eval", "--help"], ["eval", "list", "-h"], ["--version"]]
)
def test_help_and_version_are_printed_and_end_well(arguments: list[str], here: Path, capsys: Capture) -> None:
    assert here.is_dir()
    assert run_command_line(arguments) == 0
    said = capsys.readouterr()
    assert said.err == ""
    assert "Usage: codegenie" in said.out or __version__ in said.out


def test_the_version_is_all_that_is_printed_and_costs_no_heavy_package(tmp_path: Path) -> None:
    heavy = {"pydantic", "numpy", "blake3", "yaml"}
    program = (
        "import atexit, sys\nfrom codegenie.__main__ import main\nsys.argv = ['codegenie', '--version']\n"
        f"loaded = lambda: sorted({heavy!r} & sys.modules.keys())\n"
        "atexit.register(lambda: print(*loaded(), 'at the end', file=sys.stderr))\nmain()\n"
    )

    done = call([sys.executable, "-c", program], tmp_path)

    said = (f"codegenie, version {__version__}\n", "at the end\n")
    assert (done.returncode, done.stdout, done.stderr) == (0, *said)


def test_no_plugin_of_another_package_is_loaded_into_a_command(tmp_path: Path) -> None:
    """Pydantic loads what any installed package offers as a plugin, and asks it about every record."""
    offered = tmp_path / "packages" / "nosy-1.0.dist-info"
    offered.mkdir(parents=True)
    (offered / "METADATA").write_text("Metadata-Version: 2.1\nName: nosy\nVersion: 1.0\n")
    (offered / "entry_points.txt").write_text("[pydantic]\nnosy = nosy:plugin\n")
    (tmp_path / "packages" / "nosy.py").write_text("import sys\nsys.exit('loaded')\n")
    packages = os.pathsep.join([str(tmp_path / "packages"), SOURCES])

    done = call(eval_argv("list"), tmp_path, environment(PYTHONPATH=packages))

    assert (done.returncode, "loaded" in done.stderr) == (0, False), done.stderr


@pytest.mark.parametrize("arguments", [[], ["eval"]])
def test_no_command_at_all_is_a_usage_error_that_names_the_help(
    arguments: list[str], capsys: Capture
) -> None:
    assert run_command_line(arguments) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("codegenie: Missing command.\n")
    assert "--help`" in said.err


def test_every_command_of_the_help_can_be_loaded_and_says_what_the_help_says(
    here: Path, capsys: Capture
) -> None:
    assert here.is_dir()
    assert run_command_line(["eval", "--help"]) == 0
    overview = capsys.readouterr().out
    for name in ("run", "digest", "list", "demo"):
        assert f"  {name} " in overview
        assert run_command_line(["eval", name, "--help"]) == 0
        assert "--json" in capsys.readouterr().out


def test_a_flag_wins_over_the_environment_and_that_over_the_file(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    for name in ("default", "file", "variable", "flag"):
        (here / ("bench" if name == "default" else name) / f"from-{name}").mkdir(parents=True)
    assert listed(capsys) == ["from-default", NAME]
    (here / "pyproject.toml").write_text('[tool.codegenie.eval]\nbench_root = "file"\n', encoding="utf-8")
    assert listed(capsys) == ["from-file"]
    monkeypatch.setenv("CODEGENIE_EVAL_BENCH_ROOT", "variable")
    assert listed(capsys) == ["from-variable"]
    assert listed(capsys, "--bench-root", "flag") == ["from-flag"]


def test_several_roots_are_taken_from_file_and_environment(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    (here / "with space" / "second").mkdir(parents=True)
    (here / "pyproject.toml").write_text(
        '[tool.other]\nlimit = inf\n[tool.codegenie.eval]\nbench_root = ["bench", "with space"]\n',
        encoding="utf-8",
    )
    assert listed(capsys) == ["second", NAME]
    monkeypatch.setenv("CODEGENIE_EVAL_BENCH_ROOT", f"with space{os.pathsep}bench")
    assert listed(capsys) == ["second", NAME]


@pytest.mark.parametrize(
    "content", ["", "[tool.other]\nx = 1\n", "[tool.codegenie]\n", "not TOML, and not ours"]
)
def test_a_project_file_without_our_table_changes_nothing(here: Path, content: str, capsys: Capture) -> None:
    (here / "pyproject.toml").write_text(content, encoding="utf-8")
    assert listed(capsys) == [NAME]


def test_settings_reach_the_run(here: Path, capsys: Capture) -> None:
    settings = (
        '[tool.codegenie.eval]\nconcurrency = 1\ntimeout = 9\nmax_cost_usd = 0.5\nisolation = "subprocess"\n'
    )
    (here / "pyproject.toml").write_text(settings + 'out = "records"\n', encoding="utf-8")
    assert run_command_line(["eval", "run", NAME, "--sut", "null", "--quiet", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["report"]["complete"]
    (here / "pyproject.toml").write_text(settings.replace("timeout = 9", "timeout = 0"), encoding="utf-8")
    assert run_command_line(["eval", "run", NAME, "--sut", "null"]) == 2
    assert "--timeout" in capsys.readouterr().err


def broken(error: BaseException) -> click.Command:
    """Return a command with a bug."""

    def fail(**_options: object) -> None:
        raise error

    return click.Command("list", callback=fail, params=[click.Option(["--json"], is_flag=True)])


@pytest.mark.parametrize(
    ("error", "code", "says"),
    [
        (ZeroDivisionError("a \x1b[2J bug"), 4, "internal error: ZeroDivisionError: a \ufffd[2J bug"),
        (RecursionError(), 4, "internal error: RecursionError"),
        (MemoryError(), 4, "internal error: MemoryError"),
        (
            PermissionError(13, "Permission denied", "x\ny"),
            4,
            "the operating system reports an error: Permission denied",
        ),
        (BenchCaseLoadError("two\nlines \x9b", where="a\x1bb"), 2, "two lines \ufffd"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (click.Abort(), 130, "interrupted"),
    ],
)
def test_whatever_a_command_raises_ends_in_a_number_and_no_traceback(
    error: BaseException, code: int, says: str, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setattr(list_command, "command", broken(error))
    assert run_command_line(["eval", "list"]) == code
    # click moves to a new line after ^C.
    lines = capsys.readouterr().err.strip("\n").split("\n")
    assert lines[0].startswith(f"codegenie: {says}")
    assert len(lines) <= 3
    assert all(line.isprintable() for line in lines)

    assert run_command_line(["eval", "list", "--json"]) == code
    document = capsys.readouterr().out
    if code != 130:
        refusal = json.loads(document)["error"]
        assert refusal["message"].startswith(says.replace(" lines", "\ufffdlines"))
        assert all(text is None or text.isprintable() for text in refusal.values())


def test_a_bug_shows_where_it_is_to_whoever_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(list_command, "command", broken(ZeroDivisionError("here")))
    monkeypatch.setenv("CODEGENIE_DEBUG", "1")
    with pytest.raises(ZeroDivisionError, match="here"):
        run_command_line(["eval", "list"])


def test_every_command_of_the_group_is_known_to_the_help() -> None:
    modules = {path.stem for path in Path(cli.__file__).parent.glob("*_command.py")}
    names = ["run", "verify", "promote_verdict", "show", "export", "digest", "fence", "list", "cache", "demo"]
    assert modules == {f"{name}_command" for name in [*names, "doctor", "tiers", "abandon", "runs", "cases"]}


SHELL_ENDINGS = {
    "a reader that has gone": ("{command} eval list --json | true; exit ${{PIPESTATUS[0]}}", 4, ""),
    "a reader of words that has gone": ("{command} eval list | true; exit ${{PIPESTATUS[0]}}", 4, ""),
    "a reader that has gone before a refusal": (
        "{command} eval list --json --bench-root gone | true; exit ${{PIPESTATUS[0]}}",
        4,
        "",
    ),
    "a full disk": ("{command} eval list > /dev/full", 4, "No space left on device"),
    "a full disk before a refusal": (
        "{command} eval list --json --bench-root gone > /dev/full",
        4,
        "No space left",
    ),
    "a closed stdout": ("{command} eval list >&-", 0, ""),
    "a closed stderr": ("{command} eval list --bench-root gone 2>&-", 2, ""),
    "a full disk for the refusal": ("{command} eval list --bench-root gone 2>/dev/full", 4, ""),
    "ASCII only": ("PYTHONIOENCODING=ascii {command} eval list", 0, ""),
}


@pytest.mark.parametrize(("line", "code", "says"), SHELL_ENDINGS.values(), ids=SHELL_ENDINGS)
def test_no_end_of_a_stream_is_a_traceback(here: Path, line: str, code: int, says: str) -> None:
    (here / "bench" / "n\u00e9").mkdir()
    script = line.format(command=" ".join(COMMAND))
    # With buffers, as for everybody: what is left in one at exit is what fails once more.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, check=False, cwd=here, env=environment
    )
    lines = done.stderr.splitlines()
    assert done.returncode == code, done.stderr
    assert [line for line in lines if says in line] == lines
    assert len(lines) == bool(says)


def test_an_interruption_while_the_harness_is_still_being_imported_is_no_traceback(tmp_path: Path) -> None:
    program = """
import sys


class Interrupting:
    def find_spec(self, name, path, target=None):
        if name == "codegenie.eval.cli":
            raise KeyboardInterrupt


from codegenie.__main__ import main

sys.meta_path.insert(0, Interrupting())
main()
"""
    done = call([sys.executable, "-c", program], tmp_path)

    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")
