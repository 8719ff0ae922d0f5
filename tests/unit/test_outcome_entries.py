"""The outcome store by itself: entries, explanations, and pruning that touches nothing else."""

import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from blake3 import blake3

from codegenie.eval.canonical import canonical_json
from codegenie.eval.errors import HarnessFailure
from codegenie.eval.store.outcomes import Miss, OutcomeStore, Place
from tests.support.commands import environment
from tests.support.stores import tagged

PLACE = Place("some-class", "one")
DAY = 86_400.0


def entry(store: OutcomeStore, trial: int = 0, age: float = 0.0) -> Path:
    """Store a value and date it back."""
    store.put("outputs", PLACE, {"trial": trial, "input": "a"}, b'{"n":%d}' % trial)
    path = store.path("outputs", PLACE, {"trial": trial, "input": "a"})
    stamp = time.time() - age
    os.utime(path, (stamp, stamp))
    return path


def test_a_value_comes_back_and_kinds_cases_and_classes_are_apart(tmp_path: Path) -> None:
    store = OutcomeStore(tmp_path)
    store.put("outputs", PLACE, {"trial": 0}, b'{"n":1}')
    assert store.get("outputs", PLACE, {"trial": 0}) == b'{"n":1}'
    assert store.get("scores", PLACE, {"trial": 0}) == Miss()
    assert store.get("outputs", Place("some-class", "two"), {"trial": 0}) == Miss()
    assert store.get("outputs", Place("other-class", "one"), {"trial": 0}) == Miss()
    assert store.get("outputs", PLACE, {"trial": 1}) == Miss()


def test_the_nearest_entry_explains_a_miss(tmp_path: Path) -> None:
    store = OutcomeStore(tmp_path)
    assert store.changed("outputs", PLACE, {"a": 1}) == ()
    store.put("outputs", PLACE, {"a": 1, "b": 1, "c": 1}, b"null")
    store.put("outputs", PLACE, {"a": 2, "b": 2, "c": 1}, b"null")
    assert store.changed("outputs", PLACE, {"a": 2, "b": 2, "c": 2}) == ("c",)
    assert store.changed("outputs", PLACE, {"a": 1, "b": 1, "c": 1, "d": 1}) == ("d",)


def test_what_cannot_be_read_explains_nothing_and_is_not_waited_for(tmp_path: Path) -> None:
    store = OutcomeStore(tmp_path)
    path = entry(store)
    os.mkfifo(path.with_name("pipe.json"))
    path.with_name("torn.json").write_text("{")
    path.with_name("loop.json").symlink_to(path.with_name("loop.json"))
    assert store.changed("outputs", PLACE, {"trial": 5, "input": "a"}) == ("trial",)


@pytest.mark.parametrize(
    "body",
    [
        b"[]",
        b"{}",
        b"nonsense",
        canonical_json({"schema": "codegenie.eval.outcome/1", "place": [], "ingredients": {}, "value": 1}),
        canonical_json({"schema": "codegenie.eval.outcome/2", "place": [], "ingredients": [], "value": 1}),
        canonical_json({"schema": "codegenie.eval.outcome/2", "place": [], "ingredients": {}}),
    ],
)
def test_a_whole_file_that_is_no_entry_is_damage(tmp_path: Path, body: bytes) -> None:
    store = OutcomeStore(tmp_path)
    entry(store).write_bytes(tagged(tmp_path, body))
    assert store.get("outputs", PLACE, {"trial": 0, "input": "a"}) == Miss(damaged=True)
    assert store.changed("outputs", PLACE, {"trial": 0}) == ()


def test_a_store_that_cannot_be_read_is_damage(tmp_path: Path) -> None:
    (tmp_path / "outputs").write_text("a file")
    assert OutcomeStore(tmp_path).get("outputs", PLACE, {"trial": 0}) == Miss(damaged=True)


def test_an_entry_under_the_name_of_another_is_damage(tmp_path: Path) -> None:
    store = OutcomeStore(tmp_path)
    entry(store, 0).replace(entry(store, 1))
    assert store.get("outputs", PLACE, {"trial": 1, "input": "a"}) == Miss(damaged=True)


def test_pruning_removes_what_is_old_and_keeps_the_rest(tmp_path: Path) -> None:
    store = OutcomeStore(tmp_path)
    old, young = entry(store, 0, 31 * DAY), entry(store, 1, 29 * DAY)
    assert store.prune(30 * DAY) == (1, 1)
    assert not old.exists()
    assert young.exists()
    assert store.prune(0) == (1, 0)
    assert store.prune(0) == (0, 0)


def test_pruning_nothing_is_no_error(tmp_path: Path) -> None:
    assert OutcomeStore(tmp_path / "missing").prune(0) == (0, 0)


def test_an_entry_from_the_future_does_not_stay_for_ever(tmp_path: Path) -> None:
    store = OutcomeStore(tmp_path)
    entry(store, 0, -10 * DAY)
    almost = entry(store, 1, -60.0)
    assert store.prune(30 * DAY) == (1, 1)
    assert almost.exists()


def test_a_write_under_way_is_not_pruned_and_a_torn_one_is(tmp_path: Path) -> None:
    store = OutcomeStore(tmp_path)
    path = entry(store)
    writing = path.with_name(f".{path.name}.0123456789abcdef.tmp")
    torn = path.with_name(f".{path.name}.fedcba9876543210.tmp")
    for file in (writing, torn):
        file.write_text("half")
    os.utime(torn, (time.time() - 2 * 3_600, time.time() - 2 * 3_600))
    assert store.prune(30 * DAY) == (1, 2)
    assert writing.exists()
    assert not torn.exists()


def test_pruning_touches_only_entries_and_follows_no_link(tmp_path: Path) -> None:
    """Somebody names the wrong directory, or put a link into the right one."""
    cache, precious = tmp_path / "cache", tmp_path / "precious"
    store = OutcomeStore(cache)
    path = entry(store)
    name = path.name
    kept = [
        precious / "case" / name,
        cache / "outputs" / "some-class" / "one" / "README.json",
        cache / "elsewhere" / "a" / "b" / name,
        cache / "outputs" / name,
    ]
    for file in kept:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("mine")
    (cache / "outputs" / "linked").symlink_to(precious)
    (cache / "outputs" / "some-class" / "linked").symlink_to(precious / "case")
    (cache / "scores").symlink_to(cache / "outputs")
    directory = path.with_name("0" * 64 + ".json")
    directory.mkdir()
    assert store.prune(0) == (1, 0)
    assert [file.read_text() for file in kept] == ["mine"] * 4
    assert directory.is_dir()


# --- the key of the owner --------------------------------------------------------------------------


def test_the_key_is_made_once_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    store = OutcomeStore(tmp_path / "cache")
    entry(store)
    key = tmp_path / "cache" / "key"
    assert (len(key.read_bytes()), stat.S_IMODE(key.stat().st_mode)) == (32, 0o600)
    again = OutcomeStore(tmp_path / "cache")
    assert again.get("outputs", PLACE, {"trial": 0, "input": "a"}) == b'{"n":0}'
    entry(OutcomeStore(tmp_path / "other"))
    assert (tmp_path / "other" / "key").read_bytes() != key.read_bytes()
    assert sorted(path.name for path in key.parent.iterdir()) == ["key", "outputs"]


def test_an_entry_of_another_store_or_of_an_earlier_version_is_a_miss(tmp_path: Path) -> None:
    one, other = OutcomeStore(tmp_path / "one"), OutcomeStore(tmp_path / "other")
    raw = entry(other).read_bytes()
    path = entry(one)
    path.write_bytes(raw)
    assert one.get("outputs", PLACE, {"trial": 0, "input": "a"}) == Miss(damaged=True)
    body = raw[:-65].replace(b"outcome/2", b"outcome/1")
    older = body + b"\n" + blake3(body).hexdigest().encode()
    path.unlink()
    path.with_name("f" * 64 + ".json").write_bytes(older)
    assert one.get("outputs", PLACE, {"trial": 0, "input": "a"}) == Miss(), "and is not spoken of"
    assert one.changed("outputs", PLACE, {"trial": 5, "input": "a"}) == ()
    assert one.prune(0.0) == (1, 0), "it is removed when it is old, and the key is not"
    assert (tmp_path / "one" / "key").exists()


@pytest.mark.parametrize("what", ["short", "long", "empty", "open", "link", "directory", "pipe", "socket"])
def test_a_key_that_is_not_a_private_file_of_its_length_is_to_be_removed(tmp_path: Path, what: str) -> None:
    entry(OutcomeStore(tmp_path))
    key = tmp_path / "key"
    raw = key.read_bytes()
    if what == "open":
        key.chmod(0o640)
    elif what in {"link", "directory", "pipe", "socket"}:
        key.replace(tmp_path / "elsewhere")
        if what == "link":
            key.symlink_to(tmp_path / "elsewhere")
        elif what == "directory":
            key.mkdir(mode=0o700)
        elif what == "pipe":
            os.mkfifo(key, 0o600)
        else:
            os.mknod(key, stat.S_IFSOCK | 0o600)
    else:
        key.write_bytes({"short": raw[:31], "long": raw + b"x", "empty": b""}[what])
    with pytest.raises(HarnessFailure) as refused:
        OutcomeStore(tmp_path).get("outputs", PLACE, {"trial": 0, "input": "a"})
    assert refused.value.message.startswith("the key of the outcome store is not a file of 32 bytes")
    assert refused.value.where == str(key)
    assert refused.value.hint is not None
    assert refused.value.hint.startswith("remove it, and all outcomes are measured again")
    assert "--cache" in refused.value.hint


def test_processes_that_begin_a_store_together_have_one_key(tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "from pathlib import Path\n"
        "from codegenie.eval.store.outcomes import OutcomeStore, Place\n"
        "OutcomeStore(Path(sys.argv[1])).put('outputs', Place('c', sys.argv[2]), {'trial': 0}, b'1')\n"
    )
    names = [f"case-{number}" for number in range(6)]
    argv = [sys.executable, "-c", program, str(tmp_path / "cache")]
    writers = [subprocess.Popen([*argv, name], env=environment()) for name in names]
    assert [writer.wait(60) for writer in writers] == [0] * len(names)
    store = OutcomeStore(tmp_path / "cache")
    assert [store.get("outputs", Place("c", name), {"trial": 0}) for name in names] == [b"1"] * len(names)
