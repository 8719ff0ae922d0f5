"""Build the wheel, install it as a new user would, and try it where there is no checkout.

    .venv/bin/python -m scripts.try_wheel

It is tried on every Python of `scripts.interpreters` that this machine has. Everything after the build
happens in a new directory, with a new environment and, if root starts this, as an ordinary user. pip runs
with its defaults, so it compiles what it installs. The dependencies are those of requirements.txt, with their
hashes.
"""

import os
import pwd
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from scripts.build_wheel import build, declared_version
from scripts.interpreters import VERSIONS, Interpreter, ask, find
from scripts.locks import ROOT

ORDINARY_USER = "nobody"
STEP_SECONDS = 600
AT_ONCE = 2
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
WARNING = re.compile(r"\b\w*Warning: ")
# Root's Pythons may lie in a home directory that is closed to other users. In its own mount namespace the
# trial sees that installation, at the same path, and nothing else of the home directory.
OPEN_UP = """\
set -e
stage=$1; closed=$2; prefix=$3; shift 3
mount --bind "$prefix" "$stage"
mount -t tmpfs -o mode=0755 none "$closed"
mkdir -p "$prefix"
mount --bind "$stage" "$prefix"
exec "$@"
"""


class Failed(Exception):  # noqa: N818 - the end of this program, not an error of the package
    """A step did not do what it had to."""


@dataclass(frozen=True)
class NewUser:
    """A new user without a checkout: a working directory, an environment and an account."""

    home: Path
    account: pwd.struct_passwd | None
    opened: tuple[str, str] | None = None  # a closed directory, and the installation in it that is shown
    said: list[str] = field(default_factory=list)

    def run(self, argv: Sequence[str], *, may_fail: bool = False) -> "subprocess.CompletedProcess[str]":
        """Run a program in the working directory; if it fails, raise Failed with its output."""
        account = None if self.opened else self.account
        done = subprocess.run(
            [*self._with_the_opened(), *argv],
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

    def _with_the_opened(self) -> list[str]:
        """Return the command that shows the closed installation, as root, and then becomes the user."""
        if self.opened is None or self.account is None:
            return []
        become = ["setpriv", f"--reuid={self.account.pw_uid}", f"--regid={self.account.pw_gid}"]
        show = ["unshare", "--mount", "sh", "-c", OPEN_UP, "sh", str(self.home / "stage"), *self.opened]
        return [*show, *become, "--clear-groups", "--"]

    def environment(self) -> dict[str, str]:
        """Return the whole environment of such a user: no variable of ours, and no PYTHONPATH."""
        return {
            "PATH": f"{self.home}/venv/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
            # Not the working directory: a box does not show an agent the home of its user.
            "HOME": str(self.home / "own"),
            "TMPDIR": str(self.home / "temporary"),
            "LANG": "C.UTF-8",
            "COLUMNS": str(COLUMNS),
            # A warning about what a later Python will refuse is shown, and fails the trial.
            "PYTHONWARNINGS": "default",
        }

    def codegenie(self, *arguments: str, says: str, code: int = 0) -> None:
        """Run one command, and require its exit code, a text that it prints, and no warning."""
        done = self.run(["codegenie", *arguments], may_fail=True)
        said = f"codegenie {' '.join(arguments)}: exit {done.returncode}"
        if done.returncode != code or says not in done.stdout:
            raise Failed(f"{said}, not {code} and {says!r}\n{done.stdout}")
        if WARNING.search(done.stdout):
            raise Failed(f"{said}, and it warns\n{done.stdout}")
        self.said.append(f"  {said}")


@contextmanager
def new_user() -> Iterator[NewUser]:
    """Make the directories; an ordinary user owns them, even if we are root."""
    account = pwd.getpwnam(ORDINARY_USER) if os.geteuid() == 0 else None
    home = Path(tempfile.mkdtemp(prefix="codegenie-wheel-"))
    try:
        home.chmod(0o755)
        for name in ("own", "work", "temporary", "venv", "stage"):
            (home / name).mkdir()
            if account is not None:
                os.chown(home / name, account.pw_uid, account.pw_gid)
        yield NewUser(home, account)
    finally:
        shutil.rmtree(home, ignore_errors=True)


def closed_parent(prefix: str, top: Path = Path("/")) -> str | None:
    """Return the outermost directory above an installation, and below `top`, that is closed to others."""
    above = [place for place in reversed(Path(prefix).parents) if place.is_relative_to(top)]
    return next((str(place) for place in above if not place.stat().st_mode & 0o001), None)


def who_can_run(user: NewUser, found: Interpreter) -> NewUser | None:
    """Return a user that can start this Python, if needed with the installation shown; None if none can."""
    ways = [user]
    closed = closed_parent(found.prefix) if user.account is not None else None
    if closed is not None:
        ways.append(replace(user, opened=(closed, found.prefix)))
    started = (way for way in ways if ask(found.program, partial(way.run, may_fail=True)) is not None)
    return next(started, None)


def fetch_dependencies(target: Path, version: str) -> None:
    """Download what requirements.txt pins, with the pip settings of this user; the new user has none."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "download", "-qq"]
    locked = ["--require-hashes", "--only-binary", ":all:", "-r", str(ROOT / "requirements.txt")]
    done = subprocess.run(
        [*pip, "--python-version", version, "-d", str(target), *locked],
        capture_output=True,
        text=True,
        timeout=STEP_SECONDS,
        check=False,
    )
    if done.returncode:
        raise Failed(f"cannot fetch the dependencies for Python {version}\n{done.stdout}{done.stderr}")


def install(user: NewUser, python: str, wheel: Path, packages: Path) -> None:
    """Install as the user: the hashed dependencies first, then the wheel with pip's defaults."""
    user.run([python, "-m", "venv", f"{user.home}/venv"])
    pip = [f"{user.home}/venv/bin/pip", "--disable-pip-version-check", "install", "-q"]
    offline = ["--no-index", "--find-links", str(packages)]
    user.run([*pip, *offline, "--require-hashes", "-r", f"{packages}/requirements.txt"])
    user.run([*pip, *offline, str(wheel)])


def installed_files(user: NewUser) -> list[Path]:
    """List the files of the package; its use must not change them."""
    (package,) = user.home.glob("venv/lib/python*/site-packages/codegenie")
    files = sorted(package.rglob("*"))
    if package / "eval/__pycache__" not in files:
        raise Failed("pip did not compile the package, so that this proves less than it should")
    return files


def write_bench(user: NewUser) -> None:
    """Write the bench of the reference page and an agent, as a reader of the page would."""
    files = {match["path"]: match["text"] for match in FILE.finditer(BENCH_PAGE.read_text(encoding="utf-8"))}
    files = {path: text for path, text in files.items() if f"/{BENCH}/" in path and "digests" not in path}
    for path, text in {**files, "my_agent.py": AGENT}.items():
        # A program of the user writes the files, so that the user owns them.
        writer = "import os, sys; os.makedirs(os.path.dirname(sys.argv[1]) or '.', exist_ok=True)"
        user.run(["python3", "-c", f"{writer}; open(sys.argv[1], 'w').write(sys.argv[2])", path, text])


def first_steps(user: NewUser) -> None:
    """Do what the README says, in an empty directory."""
    user.codegenie("--version", says=f"codegenie, version {declared_version()}\n")
    user.codegenie("eval", "demo", says="Next: codegenie eval run dependency-pin")
    shipped = "dependency-pin  12 cases; minimum bronze 8; shipped with codegenie"
    user.codegenie("eval", "list", says=shipped)
    user.codegenie("eval", "doctor", says="auto takes")
    write_bench(user)
    user.codegenie("eval", "tiers", "--write", says="trust-tiers.yaml is written")
    user.codegenie("eval", "digest", BENCH, "--write", says="cases/digests.yaml is written")
    user.codegenie("eval", "fence", says="clean: 1 task class, 1 case")
    user.codegenie("eval", "list", says=f"{BENCH}  1 case")
    user.codegenie("eval", "run", BENCH, "--sut", "oracle", says="passed           1 of 1 case")
    user.codegenie("eval", "run", "dependency-pin", "--sut", "python:my_agent:solve", says="of 12 cases")
    user.codegenie("eval", "verify", "--rescore", says="verified      4 records, 2 runs")
    verdict = ("promote-verdict", "dependency-pin", "--tier", "bronze")
    user.codegenie("eval", *verdict, says="insufficient", code=1)
    user.codegenie("eval", "show", "latest", says="dependency-pin")


def check_traces(user: NewUser, before: list[Path]) -> None:
    """Require that nothing was left below TMPDIR and that the installed package did not change."""
    left = [path.name for path in (user.home / "temporary").iterdir()]
    if left or installed_files(user) != before:
        raise Failed(f"left behind: {left or 'something in the installed package'}")


def try_version(version: str, wheel: Path) -> str | None:
    """Try the wheel on one version of Python; return what to report, or None if it is not available."""
    with new_user() as somebody:
        for found in find(version, os.environ):
            user = who_can_run(somebody, found)
            if user is not None:
                break
        else:
            return None
        packages = user.home / "packages"
        packages.mkdir()
        shutil.copy(ROOT / "requirements.txt", packages)
        own_wheel = Path(shutil.copy(wheel, packages))
        try:
            fetch_dependencies(packages, version)
            install(user, found.program, own_wheel, packages)
            before = installed_files(user)
            first_steps(user)
            check_traces(user, before)
        except (Failed, subprocess.TimeoutExpired) as failure:
            raise Failed(f"Python {version}, {found.program}: {failure}") from None
    who = "this user" if user.account is None else user.account.pw_name
    return "\n".join([f"{wheel.name}, installed by {who} with Python {version}:", *user.said])


def try_all(wheel: Path) -> list[str]:
    """Try the wheel on every version, two at a time; return the versions that are not available."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        tried = {version: pool.submit(try_version, version, wheel) for version in VERSIONS}
        missing = []
        for version, trial in tried.items():
            report = trial.result()
            if report is None:
                missing.append(version)
            else:
                print(report, flush=True)
    return missing


def main() -> int:
    """Build and try the wheel; return the exit status."""
    try:
        with tempfile.TemporaryDirectory(prefix="codegenie-wheel-") as directory:
            missing = try_all(build(Path(directory)))
    except Failed as failure:
        print(f"try_wheel: {failure}", file=sys.stderr)
        return 1
    tried = [version for version in VERSIONS if version not in missing]
    if not tried:
        remedy = "on Debian: apt-get install python3-venv"
        print(f"try_wheel: no Python >= 3.11 with venv; {remedy}", file=sys.stderr)
        return 1
    print(f"tried: Python {', '.join(tried)}; not to be had here: {', '.join(missing) or 'none'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
