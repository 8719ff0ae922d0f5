"""Build the wheel, install it as a new user would, and try it where there is no checkout.

    .venv/bin/python scripts/try_wheel.py

Everything after the build happens in a directory of its own, with an environment of its own and, if this is
started by root, as an ordinary user. pip runs with its defaults, so it compiles what it installs. The
dependencies are those of requirements.txt, with their hashes.
"""

import os
import pwd
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ORDINARY_USER = "nobody"
STEP_SECONDS = 300
COLUMNS = 80
# A small bench that the page on benches prints file by file, and the tests run.
BENCH_PAGE = ROOT / "docs" / "reference" / "bench.md"
BENCH = "capital-city"
FILE = re.compile(r"^```\w+ file=(?P<path>\S+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
AGENT = """\
async def solve(case):
    text = open(f"{case.input_dir}/requirements.txt").read()
    return {"files": {"requirements.txt": text.replace("requests==2.31.0", "requests==2.32.2")}}
"""
USABLE = "import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))"
VERSION = "import sys; print('%d.%d' % sys.version_info[:2])"


class Failed(Exception):  # noqa: N818 - the end of this program, not an error of the package
    """A step did not do what it had to."""


@dataclass(frozen=True)
class NewUser:
    """Somebody without a checkout: a directory to work in, an environment, and a user to be."""

    home: Path
    account: pwd.struct_passwd | None

    def run(self, argv: Sequence[str], *, may_fail: bool = False) -> subprocess.CompletedProcess[str]:
        """Run a program in the working directory; print what it said if it failed."""
        account = self.account
        done = subprocess.run(
            argv,
            cwd=self.home / "work",
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=STEP_SECONDS,
            check=False,
            user=None if account is None else account.pw_uid,
            group=None if account is None else account.pw_gid,
            extra_groups=None if account is None else [],
        )
        if done.returncode and not may_fail:
            raise Failed(f"exit {done.returncode}: {' '.join(argv)}\n{done.stdout}")
        return done

    def environment(self) -> dict[str, str]:
        """Return all that such a user's programs are told; nothing of ours, and no PYTHONPATH."""
        return {
            "PATH": f"{self.home}/venv/bin:/usr/local/bin:/usr/bin:/bin",
            "HOME": f"{self.home}/work",
            "TMPDIR": str(self.home / "temporary"),
            "LANG": "C.UTF-8",
            "COLUMNS": str(COLUMNS),
        }

    def codegenie(self, *arguments: str, says: str, code: int = 0) -> None:
        """Run one command, and demand its exit code and a text that it prints."""
        done = self.run(["codegenie", "eval", *arguments], may_fail=True)
        said = f"codegenie eval {' '.join(arguments)}: exit {done.returncode}"
        if done.returncode != code or says not in done.stdout:
            raise Failed(f"{said}, not {code} and {says!r}\n{done.stdout}")
        print(f"  {said}")


@contextmanager
def new_user() -> Iterator[NewUser]:
    """Make the directories; an ordinary user owns them, also if we are root."""
    account = pwd.getpwnam(ORDINARY_USER) if os.geteuid() == 0 else None
    home = Path(tempfile.mkdtemp(prefix="codegenie-wheel-"))
    try:
        home.chmod(0o755)
        for name in ("work", "temporary", "venv"):
            (home / name).mkdir()
            if account is not None:
                os.chown(home / name, account.pw_uid, account.pw_gid)
        yield NewUser(home, account)
    finally:
        shutil.rmtree(home, ignore_errors=True)


def build(target: Path) -> Path:
    """Build the wheel with the locked hatchling of our own environment, which needs no network."""
    argv = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(target)]
    subprocess.run(argv, cwd=ROOT, check=True, capture_output=True, timeout=STEP_SECONDS)
    (wheel,) = target.glob("*.whl")
    return wheel


def interpreter(user: NewUser) -> tuple[str, str]:
    """Find a Python that this user can run, and its version: ours may lie in a home closed to others."""
    ours = os.path.realpath(sys.executable)
    for name in (ours, "python3.11", "python3.12", "python3.13", "python3"):
        try:
            if user.run([name, "-c", USABLE], may_fail=True).returncode == 0:
                return name, user.run([name, "-c", VERSION]).stdout.strip()
        except OSError:
            continue
    raise Failed(
        "no Python >= 3.11 with venv that this user can run; on Debian: apt-get install python3-venv"
    )


def fetch_dependencies(target: Path, version: str) -> None:
    """Fetch what requirements.txt pins, with the settings that pip has here; the new user has none."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "download", "-qq"]
    locked = ["--require-hashes", "--only-binary", ":all:", "-r", str(ROOT / "requirements.txt")]
    subprocess.run(
        [*pip, "--python-version", version, "-d", str(target), *locked], check=True, timeout=STEP_SECONDS
    )


def install(user: NewUser, python: str, wheel: Path, packages: Path) -> None:
    """Install as the user: the hashed dependencies first, then the wheel with pip's defaults."""
    user.run([python, "-m", "venv", f"{user.home}/venv"])
    pip = [f"{user.home}/venv/bin/pip", "--disable-pip-version-check", "install", "-q"]
    offline = ["--no-index", "--find-links", str(packages)]
    user.run([*pip, *offline, "--require-hashes", "-r", f"{packages}/requirements.txt"])
    user.run([*pip, *offline, str(wheel)])


def installed_files(user: NewUser) -> list[Path]:
    """List the package; using it must not change it."""
    (package,) = user.home.glob("venv/lib/python*/site-packages/codegenie")
    files = sorted(package.rglob("*"))
    if package / "eval/__pycache__" not in files:
        raise Failed("pip did not compile the package, so that this proves less than it should")
    return files


def write_bench(user: NewUser) -> None:
    """Write the bench of the reference page and an agent, as somebody would who has only read about them."""
    files = {match["path"]: match["text"] for match in FILE.finditer(BENCH_PAGE.read_text(encoding="utf-8"))}
    files = {path: text for path, text in files.items() if f"/{BENCH}/" in path and "digests" not in path}
    for path, text in {**files, "my_agent.py": AGENT}.items():
        # By the user's own hand, so that the files are its own.
        writer = "import os, sys; os.makedirs(os.path.dirname(sys.argv[1]) or '.', exist_ok=True)"
        user.run(["python3", "-c", f"{writer}; open(sys.argv[1], 'w').write(sys.argv[2])", path, text])


def first_steps(user: NewUser) -> None:
    """Do what the README says, in a directory that is empty."""
    user.codegenie("demo", says="Next: codegenie eval run dependency-pin")
    user.codegenie("list", says="dependency-pin  12 cases; minimum bronze 8; shipped with codegenie")
    user.codegenie("doctor", says="auto takes")
    write_bench(user)
    user.codegenie("tiers", "--write", says="trust-tiers.yaml is written")
    user.codegenie("digest", BENCH, "--write", says="cases/digests.yaml is written")
    user.codegenie("fence", says="clean: 1 task class, 1 case")
    user.codegenie("list", says=f"{BENCH}  1 case")
    user.codegenie("run", BENCH, "--sut", "oracle", says="passed           1 of 1 case")
    user.codegenie("run", "dependency-pin", "--sut", "python:my_agent:solve", says="of 12 cases")
    user.codegenie("verify", "--rescore", says="verified      4 records, 2 runs")
    user.codegenie("promote-verdict", "dependency-pin", "--tier", "bronze", says="insufficient", code=1)
    user.codegenie("show", "latest", says="dependency-pin")


def check_traces(user: NewUser, before: list[Path]) -> None:
    """Demand that nothing was left below TMPDIR and that the installed package is as it was."""
    left = [path.name for path in (user.home / "temporary").iterdir()]
    if left or installed_files(user) != before:
        raise Failed(f"left behind: {left or 'something in the installed package'}")


def main() -> int:
    """Do all of it; return the exit status."""
    try:
        with new_user() as user:
            packages = user.home / "packages"
            packages.mkdir()
            wheel = build(packages)
            python, version = interpreter(user)
            who = "this user" if user.account is None else user.account.pw_name
            print(f"{wheel.name}, installed by {who} with Python {version}:")
            fetch_dependencies(packages, version)
            shutil.copy(ROOT / "requirements.txt", packages)
            install(user, python, wheel, packages)
            before = installed_files(user)
            first_steps(user)
            check_traces(user, before)
    except Failed as failure:
        print(f"try_wheel: {failure}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
