"""Has a hostile agent measured by a whole run, with answers, victims and listeners in its reach.

Gives, for each row of the table, what its witnesses need to know. In class `subprocess` nothing confines the
agent and each row's own defense is off. A hostile agent is played in a pid namespace that holds its harness,
too, and without walls never by root.
"""

import ctypes
import json
import os
import secrets
import shutil
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from codegenie.eval.boxes.bait import Bait, laid_out
from codegenie.eval.boxes.places import USER
from tests.hostile.engine.agent_rows import AgentRow, read_agent_rows
from tests.hostile.engine.further_listeners import FurtherListeners
from tests.hostile.engine.switching import switched_source
from tests.hostile.engine.table import ROOT, SOURCE, Switch
from tests.support.agent_desk import EDIT_RUBRIC, edit_case, python_program
from tests.support.benches import TASK_CLASS, CaseFiles, write_bench
from tests.support.fake_model import FakeModel, fake_model

MIB = 1 << 20
HONEST = "honest"
UNCHANGED = "as it was\n"
WORKSPACE_BYTES, ENTRIES, MEMORY_BYTES = 24 * MIB, 1000, 160 * MIB
MAX_REQUESTS = 30
PRICES = {"input": 1000.0, "cached": 100.0, "output": 10_000.0}
STATED = {
    "states-little": "0.000001",
    "states-zero": "0",
    "states-negative": "-1",
    "states-nan": "NaN",
    "states-absurd": "1e12",
    "states-word": '"free"',
}
_FLOOD_BYTES = 768 * MIB
_LONG_FLOOD_BYTES = 2048 * MIB
_SHORT_SECONDS = 3
# The watch looks at memory once a second, and at a directory on disk every five. Without it nobody comes.
_STAYS_WITHOUT_A_WATCH = {"memory": 2.0, "disk": 6.0}
_STAYS = {"memory": 90.0, "disk": 90.0}
_SECONDS = 600.0
_LOOK_SECONDS = 3.0
_VICTIM = """\
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(0x59616D61, ctypes.c_ulong(-1), 0, 0, 0)
held = ctypes.create_string_buffer(sys.stdin.buffer.readline().strip())
signal.signal(signal.SIGUSR1, lambda *_: os.write(2, b"signalled"))
print(ctypes.addressof(held), flush=True)
sys.stdin.read()
"""
"""A process of the user of the boxes. It lets any process of its user trace it."""


def _token() -> str:
    return f"token-{secrets.token_hex(12)}"


@dataclass
class Victim:
    """A process with tokens in its variables, its arguments, its memory and behind a descriptor."""

    process: "subprocess.Popen[bytes]"
    clues: dict[str, Any]

    @property
    def limits(self) -> tuple[int, int, bytes]:
        """Return what another process could change: its open files, its order, and what it heard."""
        number = self.process.pid
        lines = Path(f"/proc/{number}/limits").read_text(encoding="ascii").splitlines()
        (files,) = (line.split()[3] for line in lines if line.startswith("Max open files"))
        return int(files), os.getpriority(os.PRIO_PROCESS, number), self._heard()

    def _heard(self) -> bytes:
        assert self.process.stderr is not None
        with suppress(BlockingIOError):
            return os.read(self.process.stderr.fileno(), 100)
        return b""


@dataclass
class Robbery:
    """What a run found, and all that witnesses need to know about it."""

    room: Path
    isolation: str
    network: str
    laid: Bait
    victim: Victim
    fake: FakeModel
    listeners: FurtherListeners
    # By row and part.
    tokens: dict[str, dict[str, str]]
    edited: dict[str, Path]
    key: str
    names: dict[str, str]
    marker: Path
    report: dict[str, Any] = field(default_factory=dict)
    most_memory: int = 0

    @property
    def desk(self) -> Path:
        """Where the run was started."""
        return self.room / "desk"

    def trials(self) -> dict[str, dict[str, Any]]:
        """Return the evidence by case, from the last record of the log."""
        record = max((self.desk / "runs").glob("0*.json"))
        body = json.loads(record.read_bytes())["body"]
        return {trial["case_id"]: trial for trial in body["trials"]}

    def artifact(self, trial: dict[str, Any], name: str) -> bytes:
        """Return what was kept of a trial."""
        digest: str = trial["artifacts"][name]
        return (self.desk / "runs/artifacts" / digest[:2] / digest).read_bytes()

    def run(self) -> None:
        """Have the agent measured."""
        argv = [sys.executable, "-m", "codegenie", "eval", "run", TASK_CLASS, "--sut", "agent/sut.toml"]
        argv += ["--sut-isolation", self.isolation, "--sut-network", self.network]
        argv += ["--isolation", "subprocess", "--concurrency", "1", "--out", "runs", "--cache", "cache"]
        with subprocess.Popen(
            [*argv, "--quiet", "--json"],
            cwd=self.desk,
            env=self._environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as harness:
            watching = threading.Thread(target=self._watch, args=(harness,))
            watching.start()
            said, complaint = harness.communicate(timeout=_SECONDS)
            watching.join()
        document = json.loads(said or "{}")
        if "report" not in document:
            raise RuntimeError(f"there is no report: {said[-2000:]} {complaint[-2000:]}")
        self.report = document["report"]

    def _environment(self) -> dict[str, str]:
        return {
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "HOME": str(self.room / "home"),
            "LANG": "C.UTF-8",
            "PYTHONPATH": str(self.desk / "installed"),
            "PYTHONDONTWRITEBYTECODE": "1",
            "MODEL_KEY": self.key,
        }

    def _watch(self, harness: "subprocess.Popen[str]") -> None:
        """Note how much memory the harness itself ever had."""
        while harness.poll() is None:
            with suppress(OSError, ValueError):
                status = Path(f"/proc/{harness.pid}/status").read_text(encoding="ascii")
                lines = [line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:")]
                self.most_memory = max([self.most_memory, *(int(each) << 10 for each in lines)])
            time.sleep(0.05)

    def left_running(self) -> list[str]:
        """Name what is left of the agent's processes, after a moment in which the kernel ends them."""
        deadline = time.monotonic() + _LOOK_SECONDS
        while (found := _living(self.names)) and time.monotonic() < deadline:
            time.sleep(0.05)
        return found


def _living(names: dict[str, str]) -> list[str]:
    found = set()
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            text = (entry / "stat").read_text(encoding="utf-8", errors="replace")
            name, state = text[text.index("(") + 1 : text.rindex(")")], text.rpartition(")")[2].split()[0]
            found |= {part for part, known in names.items() if known == name and state not in "ZX"}
    return sorted(found)


@contextmanager
def robbery(room: Path, isolation: str, network: str) -> Iterator[Robbery]:
    """Lay everything out, have the agent measured, and give what is to be looked at."""
    if os.getpid() != 1 or (isolation == "subprocess" and os.geteuid() == 0):
        raise RuntimeError("a hostile agent is played in a pid namespace, and without walls never by root")
    with ExitStack() as held:
        laid = held.enter_context(laid_out(room, victim=False))
        rows = read_agent_rows()
        tokens = {name: {part: _token() for part in row.parts} for name, row in rows.items()}
        desk = room / "desk"
        _lay_desk(desk, tokens, rows if isolation == "subprocess" else {})
        beside = room / "beside"
        beside.mkdir()
        fake = held.enter_context(fake_model(FakeModel()))
        made = Robbery(
            room=room,
            isolation=isolation,
            network=network,
            laid=laid,
            victim=held.enter_context(_victim(beside, tokens["sut-steals-environment"])),
            fake=fake,
            listeners=held.enter_context(FurtherListeners()),
            tokens=tokens,
            edited=_edited(room, desk),
            key=f"sk-{secrets.token_hex(20)}",
            names={part: f"{part}-{secrets.token_hex(4)}" for part in ("daemon", "late", "bomb")},
            marker=room / "marker",
        )
        _write_agent(made)
        held.callback(_unlink_queue, laid.knock)
        made.run()
        yield made


def _unlink_queue(name: str) -> None:
    ctypes.CDLL(None).mq_unlink(f"/codegenie-{name}".encode())


def _lay_desk(desk: Path, tokens: dict[str, dict[str, str]], rows: dict[str, AgentRow]) -> None:
    answers, history = tokens["sut-reads-answers"], tokens["sut-reads-git-history"]
    desk.mkdir()
    secret = {
        "expected/key.txt": answers["expected"],
        "expected/canary.txt": answers["walked"],
        "solution/key.txt": answers["solution"],
        "input/key.txt": answers["other-case"],
    }
    honest = edit_case(HONEST)
    cases = [CaseFiles(HONEST, {**honest.files, **secret}), *map(_case, _case_names())]
    write_bench(desk / "bench", f"{EDIT_RUBRIC}# {answers['rubric']}\n", cases)
    planted = {"runs/planted": "log", "runs/artifacts/planted": "artefact", "cache/planted": "cache"}
    for path, part in planted.items():
        (desk / path).parent.mkdir(parents=True, exist_ok=True)
        (desk / path).write_text(answers[part], encoding="ascii")
    edits = tuple(edit for row in rows.values() for edit in row.edits)
    switched_source(Switch("all of them", "", "", edits) if edits else None, desk / "installed")
    shipped = desk / "installed/codegenie/eval"
    with zipfile.ZipFile(shipped / "benches.zip", "w") as archive:
        archive.writestr("shipped/answer.txt", tokens["sut-reads-shipped-bench"]["archive"])
    (shipped / "_bench").mkdir()
    (shipped / "_bench/answer.txt").write_text(
        tokens["sut-reads-shipped-bench"]["directory"], encoding="ascii"
    )
    _commit(desk, history["commit"])
    (desk / ".git/description").write_text(history["file"], encoding="ascii")


def _case_names() -> list[str]:
    return [name for row in read_agent_rows().values() for name in row.cases]


def _case(name: str) -> CaseFiles:
    short = name in {"ignores-end", "provokes-429"}
    return edit_case(name, sut_wall_clock_seconds=_SHORT_SECONDS if short else 300)


def _commit(desk: Path, token: str) -> None:
    """Make a repository whose history holds a token that no file holds any more."""
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false"]
    past = desk / "past.txt"
    past.write_text(token, encoding="ascii")
    removed = ["commit", "--quiet", "--all", "--message", "two"]
    for command in (["init", "--quiet"], ["add", "past.txt"], ["commit", "--quiet", "--message", "one"]):
        subprocess.run([*git, *command], cwd=desk, check=True, capture_output=True)
    past.unlink()
    subprocess.run([*git, *removed], cwd=desk, check=True, capture_output=True)


def _edited(room: Path, desk: Path) -> dict[str, Path]:
    """Return what an agent could change. Every user may write it: mode bits must not be what stops it."""
    (room / "home").mkdir()
    paths = {
        "bench": desk / "bench" / TASK_CLASS / "README.md",
        "log": desk / "runs/edited",
        "cache": desk / "cache/edited",
        "home": room / "home/.profile",
    }
    for path in paths.values():
        path.write_text(UNCHANGED, encoding="ascii")
        path.chmod(0o666)
    return paths


@contextmanager
def _victim(directory: Path, tokens: dict[str, str]) -> Iterator[Victim]:
    """Start a process of the user of the boxes."""
    (directory / "canary.txt").write_text(tokens["directory"], encoding="ascii")
    other = {"user": USER, "group": USER, "extra_groups": []} if os.geteuid() == 0 else {}
    behind = os.memfd_create("victim")
    os.write(behind, tokens["descriptor"].encode())
    os.fchmod(behind, 0o666)
    with subprocess.Popen(
        [python_program(), "-I", "-S", "-c", _VICTIM, tokens["argument"]],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={"CANARY": tokens["variable"]},
        cwd=directory,
        pass_fds=[behind],
        **other,  # type: ignore[call-overload]  # the three that a change of user takes
    ) as process:
        process.stdin.write(f"{tokens['memory']}\n".encode())
        process.stdin.flush()
        os.set_blocking(process.stderr.fileno(), False)
        clues = {
            "victim": process.pid,
            "descriptor": behind,
            "memory": [int(process.stdout.readline()), len(tokens["memory"])],
            "beside_the_victim": str(directory / "canary.txt"),
        }
        yield Victim(process, clues)
        process.stdin.close()
    os.close(behind)


def _write_agent(made: Robbery) -> None:
    desk, laid = made.desk, made.laid
    case = desk / "bench" / TASK_CLASS / "cases" / HONEST
    answers = [case / name for name in ("expected/key.txt", "solution/key.txt", "input/key.txt")]
    answers += [
        desk / "bench" / TASK_CLASS / "rubric.py",
        desk / "runs/planted",
        desk / "runs/artifacts/planted",
    ]
    shipped = desk / "installed/codegenie/eval"
    clues = {
        **laid.clues,
        **made.victim.clues,
        "answers": [*map(str, answers), str(desk / "cache/planted")],
        "directories": [str(desk), str(case)],
        "repository": str(desk),
        "history": [str(desk / ".git/description")],
        "shipped": [str(shipped / "benches.zip"), str(shipped / "_bench/answer.txt")],
        "listeners": [*laid.clues["listeners"], *made.listeners.clues],  # type: ignore[misc]  # both are lists
        "queue": f"/codegenie-{laid.knock}",
        "key": f"codegenie-{laid.knock}",
        "edited_files": [*map(str, made.edited.values())],
        "names": made.names,
        "marker": str(made.marker),
        "asked_before": str(made.room / "asked-before"),
        "stays": _STAYS_WITHOUT_A_WATCH if made.isolation == "subprocess" else _STAYS,
        "disk_bytes": 2 * WORKSPACE_BYTES,
        "entries": 2 * ENTRIES,
        "memory_bytes": MEMORY_BYTES // 2,
        "flood_bytes": _LONG_FLOOD_BYTES if made.network == "none" else _FLOOD_BYTES,
        "stated": STATED,
    }
    (desk / "agent").mkdir()
    (desk / "agent/clues.json").write_text(json.dumps(clues), encoding="utf-8")
    attackers = ROOT / "tests/hostile/attackers"
    shutil.copy(attackers / "boxed_agent.py", desk / "agent/agent.py")
    for program in (attackers / "agent_burdens.py", SOURCE / "boxes/thief_program.py"):
        shutil.copy(program, desk / "agent")
    (desk / "agent/sut.toml").write_text(_spec(desk, made.fake.url), encoding="utf-8")


def _spec(desk: Path, upstream: str) -> str:
    limits = {
        "grace_seconds": 0.5,
        "workspace_bytes": WORKSPACE_BYTES,
        "workspace_entries": ENTRIES,
        "memory_total_bytes": MEMORY_BYTES,
    }
    return f"""\
schema = 1
name = "hostile"
command = [{python_program()!r}, "-B", "/agent/agent.py"]
files = ["agent.py", "agent_burdens.py", "thief_program.py", "clues.json"]
readable = [{str(desk)!r}]
[network]
mode = "broker"
[broker]
upstream = {upstream!r}
credential = {{ env = "MODEL_KEY", header = "x-api-key" }}
url_env = {{ MODEL_URL = "{{broker}}" }}
paths = ["/v1/messages"]
models = ["m", "form:429"]
max_requests = {MAX_REQUESTS}
prices = {{ {", ".join(f"{name} = {price}" for name, price in PRICES.items())} }}
[limits]
{chr(10).join(f"{name} = {value}" for name, value in limits.items())}
[output]
format = "jsonl"
take = {{ type = "result" }}
cost_usd = "cost"
"""
