"""The wheel as an installer leaves it: unpacked, everything in it compiled, no checkout in sight."""

import compileall
import os
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.benches import TASK_CLASS, write_bench
from tests.support.commands import answered, without_a_box
from tests.support.sampling import one_worker

pytestmark = one_worker(__name__)

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("wheel")
    argv = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(directory)]
    subprocess.run(argv, cwd=ROOT, check=True, capture_output=True, timeout=120)
    (built,) = directory.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with the package, in which a `__pycache__` lies beside everything that has one."""
    directory = tmp_path_factory.mktemp("site-packages")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(directory)
    assert compileall.compile_dir(directory, quiet=1, force=True)
    assert (directory / "codegenie/eval/__pycache__").is_dir()
    return directory


class NewUser:
    """Somebody who has the wheel and an empty directory."""

    def __init__(self, installed: Path, directory: Path) -> None:
        self.installed = installed
        self.directory = directory / "empty"
        self.directory.mkdir()
        self.temporary = directory / "tmp"
        self.temporary.mkdir()

    def calls(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        process = self.starts(*arguments)
        out, err = process.communicate(timeout=120)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def starts(self, *arguments: str) -> subprocess.Popen[str]:
        # Coverage would look for these files when they are gone.
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("COVERAGE", "COV_", "CODEGENIE_", "PYTHON"))
        }
        return subprocess.Popen(
            [sys.executable, "-m", "codegenie", "eval", *arguments],
            cwd=self.directory,
            env={**kept, "PYTHONPATH": str(self.installed), "TMPDIR": str(self.temporary)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


@pytest.fixture
def user(installed: Path, tmp_path: Path) -> Iterator[NewUser]:
    before = sorted(installed.rglob("*"))
    yield NewUser(installed, tmp_path)
    assert sorted(installed.rglob("*")) == before
    assert list((tmp_path / "tmp").iterdir()) == []


def test_the_demo_runs_from_a_package_that_was_compiled(user: NewUser) -> None:
    done = user.calls("demo")

    assert done.returncode == 0, done.stderr
    assert list(user.directory.iterdir()) == []


def test_nothing_in_the_wheel_is_a_bench_that_an_installer_could_compile(
    installed: Path, wheel: Path
) -> None:
    names = zipfile.ZipFile(wheel).namelist()

    assert [name for name in names if "dependency-pin" in name or name.endswith("rubric.py")] == [
        "codegenie/eval/bench/codegenie_rubric.py"
    ]
    assert (installed / "codegenie/eval/benches.zip").is_file()


def test_the_shipped_bench_is_listed_run_and_judged_where_there_is_no_other(user: NewUser) -> None:
    listed = answered(user.calls("list", "--json"))["task_classes"]
    assert [(entry["name"], entry["shipped"], entry["problem"]) for entry in listed] == [
        ("dependency-pin", True, None)
    ]
    assert user.calls("list").stdout.startswith("dependency-pin  12 cases; minimum bronze 8; shipped")
    assert user.calls("tiers", "--write").returncode == 0

    run = user.calls("run", "dependency-pin", "--sut", "oracle", "--quiet", "--json")

    assert run.returncode == 0, run.stderr
    # All that speaks against it is that the oracle is no agent.
    assert [reason.partition(":")[0] for reason in answered(run)["verdict"]["reasons"]] == ["no_agent"]
    shown = user.calls("show", "latest", "requests-2-31-0", "--diff").stdout
    assert "-requests==2.31.0\n" in shown
    assert user.calls("digest", "dependency-pin").stdout == "12 current\n"
    verified = answered(user.calls("verify", "--rescore", "--json"))
    assert (verified["ok"], verified["rescored"], verified["benches_missing"]) == (True, 12, [])
    assert user.calls("promote-verdict", "dependency-pin", "--tier", "bronze").returncode == 1


def test_the_fence_says_what_to_do_where_there_is_no_bench(user: NewUser) -> None:
    done = user.calls("fence")

    assert done.returncode == 2
    assert done.stderr.splitlines()[0] == "codegenie: there is no bench/ to check"


@pytest.mark.parametrize(
    "command", [without_a_box("run", "dependency-pin", "--sut", "python:slow:agent"), ("demo",)]
)
def test_a_command_that_is_told_to_end_takes_its_copy_of_the_benches_along(
    user: NewUser, command: tuple[str, ...]
) -> None:
    slow = "import time\n\n\ndef agent(case):\n    time.sleep(60)\n"
    (user.directory / "slow.py").write_text(slow, encoding="utf-8")
    process = user.starts(*command)
    deadline = time.monotonic() + 60
    while not list(user.temporary.glob("*/bench/dependency-pin")) and time.monotonic() < deadline:
        time.sleep(0.01)

    process.send_signal(signal.SIGTERM)

    process.communicate(timeout=60)
    assert process.returncode == 143


def test_the_digests_of_a_shipped_bench_are_not_written(user: NewUser) -> None:
    done = user.calls("digest", "dependency-pin", "--write")

    assert done.returncode == 2
    assert "'dependency-pin' is shipped with codegenie" in done.stderr


def test_a_package_without_its_benches_says_so(wheel: Path, tmp_path: Path) -> None:
    directory = tmp_path / "site-packages"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(directory)
    (directory / "codegenie/eval/benches.zip").unlink()
    user = NewUser(directory, tmp_path)

    done = user.calls("demo")

    assert (done.returncode, "install codegenie again" in done.stderr) == (4, True)
    assert user.calls("list").stdout == "no task class\n"


def test_benches_of_ones_own_need_no_shipped_ones(wheel: Path, tmp_path: Path) -> None:
    directory = tmp_path / "site-packages"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(directory)
    (directory / "codegenie/eval/benches.zip").unlink()
    user = NewUser(directory, tmp_path)
    write_bench(user.directory / "bench")

    done = user.calls("run", TASK_CLASS, "--sut", "null", "--quiet")

    assert (done.returncode, done.stderr) == (0, "")
