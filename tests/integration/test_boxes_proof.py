"""The proof of boxes: a thief finds nothing in them and everything without; a missing wall is noticed."""

import asyncio
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import codegenie
from codegenie.eval.boxes import bait, launching, proof
from codegenie.eval.boxes.request import Network
from codegenie.eval.errors import BoxFailed, IsolationNotProved, IsolationUnavailable
from codegenie.eval.isolation import hiding
from codegenie.eval.isolation_proof import BoxProof, required_of_box
from codegenie.eval.models import IsolationClass
from codegenie.eval.system.run_directory import run_directory
from tests.support.confinement import CONFINED
from tests.support.sampling import one_worker

pytestmark = one_worker(__name__)

NETWORKS: tuple[Network, ...] = ("none", "broker", "host")
WAYS = [(each, network) for each in CONFINED for network in NETWORKS]


def proved(isolation_class: IsolationClass, network: Network = "none") -> BoxProof:
    async def found(directory: Path) -> BoxProof:
        boxes, record = await proof.proved(isolation_class, directory, network)
        await boxes.close()
        return record

    with run_directory() as directory:
        return asyncio.run(found(directory))


@pytest.mark.parametrize(
    ("isolation_class", "network"),
    [
        pytest.param(*way, marks=() if way[1] == "broker" else pytest.mark.all_ways, id="-".join(way))
        for way in WAYS
    ],
)
def test_a_thief_finds_nothing_in_a_box_and_everything_without(
    isolation_class: IsolationClass, network: Network
) -> None:
    record = proved(isolation_class, network)

    assert record.holds
    assert {probe.name for probe in record.probes if probe.blocked} >= required_of_box(
        isolation_class, network
    )
    # With the network of the host, and only then, it reaches the listeners of the host.
    through = {probe.name for probe in record.probes if not probe.blocked}
    assert through == ({"tcp-connect", "udp-send"} if network == "host" else set())


def test_boxes_are_proved_where_only_their_own_user_can_go(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tmp_path.chmod(0o700)
    # Longer than the path of a socket can be.
    place = tmp_path / ("long-" * 20)
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))

    assert proved("namespace").holds
    if os.geteuid() == 0:
        with pytest.raises(IsolationNotProved, match="the user of the boxes cannot enter") as refused:
            proved("landlock")
        assert "TMPDIR" in (refused.value.hint or "")
    else:
        assert proved("landlock").holds


def test_a_harness_that_hides_itself_proves_its_boxes_too() -> None:
    hiding.hide()
    try:
        assert proved("namespace").holds
    finally:
        hiding.unhide()


def test_a_thief_leaves_nothing_on_the_host() -> None:
    before = {name for name in os.listdir("/tmp") if name.startswith("codegenie-eval-bait")}
    segments = len(Path("/proc/sysvipc/shm").read_text().splitlines())

    proved("namespace")

    assert {name for name in os.listdir("/tmp") if name.startswith("codegenie-eval-bait")} <= before
    assert len(Path("/proc/sysvipc/shm").read_text().splitlines()) == segments


# Each wall is taken away in a copy of the package, from which the box server runs.

NO_FILTER = ("walls.py", "        self._calls.load(os.getpid())\n", "")
HOSTS_TMP = """for path, (size, entries) in sizes.items():
            if path == "/tmp":
                syscalls.mount("/tmp", CAGE + path, None, syscalls.MS_BIND)
                continue
"""
Edit = tuple[str, str, str]
MISSING: list[tuple[IsolationClass, str, list[Edit]]] = [
    (
        "namespace",
        "secret-file|git-history|walked-file",
        [("world.py", "            _hide(path)\n", "            pass\n")],
    ),
    ("namespace", "outside-seccomp", [NO_FILTER]),
    (
        "namespace",
        "tmp-file|edited-file",
        [("world.py", "for path, (size, entries) in sizes.items():\n", HOSTS_TMP)],
    ),
    (
        "landlock",
        "edited-file|private-file",
        [("walls.py", "NO_NEW_PRIVS, 1)\n        self._rules.take_on()\n", "NO_NEW_PRIVS, 1)\n")],
    ),
    (
        "landlock",
        "abstract-socket|system-v-memory|unix-socket",
        [("walls.py", "namespaces=False", "namespaces=True")],
    ),
    ("landlock", "unix-mailbox", [("filter.py", "*(_YES if namespaces else kinds)", "*_YES")]),
    (
        "landlock",
        "system-v-memory",
        [("filter.py", "DENIED if namespaces else DENIED + OF_THE_HOST", "DENIED")],
    ),
    (
        "landlock",
        "tcp-connect",
        [
            ("walls.py", 'tcp=0 if self._network == "host" else 3', "tcp=0"),
            ("walls.py", "            self._rules.allow_connections_to(port)\n", "            pass\n"),
        ],
    ),
]


def use_edited(monkeypatch: pytest.MonkeyPatch, directory: Path, *edits: Edit) -> None:
    """Have box servers run from a copy of the package with these edits."""
    package = Path(codegenie.__file__).parent
    copied = directory / "edited" / package.name
    shutil.copytree(package, copied, ignore=shutil.ignore_patterns("__pycache__"))
    for name, old, new in edits:
        path = copied / "eval" / "boxes" / name
        text = path.read_text(encoding="utf-8")
        assert text.count(old) >= 1, f"{name}: {old!r}"
        path.write_text(text.replace(old, new), encoding="utf-8")
    original, program = launching._PROGRAM, copied / "eval" / "boxes" / "box_server_program.py"  # noqa: SLF001 - the program itself
    monkeypatch.setattr(launching, "_PROGRAM", program)
    assert original != program


@pytest.mark.parametrize(
    ("isolation_class", "named", "edits"),
    [
        pytest.param(*row, marks=() if at in {0, 3} else pytest.mark.all_ways, id=f"{row[0]}-{row[1]}")
        for at, row in enumerate(MISSING)
    ],
)
def test_a_wall_that_is_missing_is_noticed(
    isolation_class: IsolationClass,
    named: str,
    edits: list[Edit],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    use_edited(monkeypatch, tmp_path, *edits)
    network: Network = "broker" if named == "tcp-connect" else "none"

    with pytest.raises(IsolationNotProved, match=f"'({named})' was not blocked"):
        proved(isolation_class, network)


def test_a_namespace_that_was_not_made_is_refused_before_any_mount(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    use_edited(monkeypatch, tmp_path, ("world.py", "| _CLONE_NEWCGROUP", "| 0"))

    with pytest.raises((BoxFailed, IsolationUnavailable), match="the cgroup namespace is not a new one"):
        proved("namespace")


def test_a_thief_that_outlives_a_failed_proof_still_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[str] = []
    real = proof._robbed  # noqa: SLF001 - one of the two thieves

    async def with_a_failing_control(
        boxes: launching.Boxes, laid: bait.Bait, network: Network
    ) -> dict[str, bool]:
        if boxes.is_control:
            raise IsolationNotProved("the control failed at once")
        found = await real(boxes, laid, network)
        ended.extend(os.listdir(laid.readable[0]))
        return found

    monkeypatch.setattr(proof, "_robbed", with_a_failing_control)

    with pytest.raises(IsolationNotProved, match="failed at once"):
        proved("namespace")
    assert "shown.txt" in ended


def test_a_control_that_does_not_find_everything_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def with_one_less(run_directory: Path, *, victim: bool) -> Iterator[bait.Bait]:
        with bait.laid_out(run_directory, victim=victim) as found:
            if not victim:
                os.remove(found.clues["files"][2])  # type: ignore[index]  # a list of paths
            yield found

    monkeypatch.setattr(proof, "laid_out", with_one_less)

    with pytest.raises(IsolationNotProved, match="its control failed: 'private-file'"):
        proved("namespace")


def test_the_class_without_walls_claims_nothing() -> None:
    assert proved("subprocess").probes == ()


def test_auto_takes_a_weaker_class_only_for_what_the_kernel_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    real = proof.proved
    asked: list[str] = []
    reasons: list[str] = []

    async def without_namespaces(
        isolation_class: IsolationClass, directory: Path, network: Network
    ) -> tuple[launching.Boxes, BoxProof]:
        asked.append(isolation_class)
        if isolation_class == "namespace":
            raise IsolationUnavailable("no namespaces here")
        return await real(isolation_class, directory, network)

    async def strongest(directory: Path) -> BoxProof:
        boxes, record = await proof.strongest_proved("auto", directory, "none", reasons.append)
        await boxes.close()
        return record

    monkeypatch.setattr(proof, "proved", without_namespaces)
    with run_directory() as directory:
        assert asyncio.run(strongest(directory)).isolation_class == "landlock"

    assert (asked, reasons) == (["namespace", "landlock"], ["no namespaces here"])


def test_a_class_that_does_not_exist_is_refused() -> None:
    with run_directory() as directory, pytest.raises(IsolationUnavailable, match="no isolation class 'moat'"):
        asyncio.run(proof.strongest_proved("moat", directory, "none"))
