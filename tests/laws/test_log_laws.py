"""Whatever is done to the bytes of a log that real runs wrote, `verify` finds it; the log itself holds."""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from codegenie.eval.canonical import canonical_json
from codegenie.eval.errors import ChainTamperDetected
from codegenie.eval.log.artifacts import ArtifactStore
from codegenie.eval.log.chain import Link, record_hash, record_name
from codegenie.eval.log.disk import HEAD
from codegenie.eval.store.outcomes import Miss, OutcomeStore, Place
from tests.support.benches import ECHO_RUBRIC, write_bench
from tests.support.logs import (
    VERDICTS,
    build_log,
    candid,
    read_records,
    record_files,
    record_run,
    verified,
    write_log,
)

LAW = settings(
    deadline=None,
    max_examples=150,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    database=None,
)
LAST = 7


@pytest.fixture(scope="module")
def real_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_log(tmp_path_factory.mktemp("log"))


@pytest.fixture
def log(real_log: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(real_log, tmp_path / "runs"))


def evidence_files(log: Path) -> list[Path]:
    """Return all that a log is made of: records, HEAD and artefacts."""
    artifacts = sorted(path for path in (log / "artifacts").rglob("*") if path.is_file())
    return [*record_files(log), log / HEAD, *artifacts]


def refusal(log: Path) -> ChainTamperDetected:
    with pytest.raises(ChainTamperDetected) as caught:
        verified(log)
    assert caught.value.where, "a refusal names the file"
    return caught.value


def named_after(path: Path) -> str:
    """Return the file that binds the hash of this one, and so shows that it was changed."""
    if path.suffix != ".json":
        return path.name
    index = int(path.stem)
    return HEAD if index == LAST else record_name(index + 1)


def flipped(raw: bytes, place: int, bit: int) -> bytes:
    return raw[:place] + bytes([raw[place] ^ (1 << bit)]) + raw[place + 1 :]


# --- the log as it is ------------------------------------------------------------------------------


def test_an_untouched_log_holds(log: Path) -> None:
    found = verified(log)
    assert [record["kind"] for record in read_records(log)] == [
        "run.started",
        "run.finished",
        "run.started",
        "run.resumed",
        "run.finished",
        "exam.finished",
        "run.started",
        "run.finished",
    ]
    assert len(found.hashes) == len(record_files(log)) == 8
    assert found.notes == []
    assert found.artifacts_missing == 0


def test_every_artefact_of_the_log_is_looked_at(log: Path) -> None:
    assert verified(log).artifacts_checked == len(evidence_files(log)) - 9 >= 6


def test_chaining_a_log_anew_without_a_change_gives_the_same_bytes(log: Path) -> None:
    """The forgeries below change what they say and nothing else."""
    before = [path.read_bytes() for path in [*record_files(log), log / HEAD]]
    write_log(log, read_records(log))
    assert [path.read_bytes() for path in [*record_files(log), log / HEAD]] == before
    verified(log)


# --- changed bytes ---------------------------------------------------------------------------------


@LAW
@given(draw=st.data())
def test_any_flipped_bit_is_found(real_log: Path, draw: st.DataObject) -> None:
    path = draw.draw(st.sampled_from(evidence_files(real_log)))
    raw = path.read_bytes()
    place = draw.draw(st.integers(0, len(raw) - 1))
    path.write_bytes(flipped(raw, place, draw.draw(st.integers(0, 7))))
    try:
        where = refusal(real_log).where or ""
    finally:
        path.write_bytes(raw)
    assert Path(where).name in {path.name, named_after(path)}


def test_one_flipped_bit_in_every_byte_of_a_run_is_found(tmp_path: Path) -> None:
    root = write_bench(tmp_path / "bench", ECHO_RUBRIC, ["passed"])
    log = tmp_path / "runs"
    record_run(root, log, candid)
    verified(log)
    files = evidence_files(log)
    assert len(files) == 6
    missed = [f"{path.name}:{place}" for path in files for place in unfound_flips(path, log)]
    assert missed == []


def unfound_flips(path: Path, log: Path) -> Iterator[int]:
    raw = path.read_bytes()
    for place in range(len(raw)):
        path.write_bytes(flipped(raw, place, place * 5 % 8))
        try:
            verified(log)
        except ChainTamperDetected:
            continue
        yield place
    path.write_bytes(raw)


@LAW
@given(draw=st.data())
def test_bytes_appended_to_or_cut_from_any_file_are_found(real_log: Path, draw: st.DataObject) -> None:
    path = draw.draw(st.sampled_from(evidence_files(real_log)))
    raw = path.read_bytes()
    longer = st.binary(min_size=1, max_size=8).map(lambda more: raw + more)
    shorter = st.integers(0, len(raw) - 1).map(lambda size: raw[:size])
    path.write_bytes(draw.draw(longer | shorter))
    try:
        refusal(real_log)
    finally:
        path.write_bytes(raw)


@LAW
@given(draw=st.data())
def test_records_in_any_other_order_are_found(real_log: Path, draw: st.DataObject) -> None:
    files = record_files(real_log)
    contents = [path.read_bytes() for path in files]
    order = draw.draw(st.permutations(range(len(files))).filter(lambda found: found != sorted(found)))
    for path, number in zip(files, order, strict=True):
        path.write_bytes(contents[number])
    try:
        where = refusal(real_log).where
    finally:
        for path, raw in zip(files, contents, strict=True):
            path.write_bytes(raw)
    first = next(number for number, moved in enumerate(order) if number != moved)
    assert where == record_name(first)


@pytest.mark.parametrize("index", range(8))
def test_a_dropped_record_is_found(log: Path, index: int) -> None:
    (log / record_name(index)).unlink()
    named = refusal(log).where
    assert named == (record_name(index + 1) if index < 7 else HEAD)


@pytest.mark.parametrize("index", range(8))
def test_a_dropped_record_whose_followers_move_up_is_found(log: Path, index: int) -> None:
    for number in range(index, 7):
        shutil.copyfile(log / record_name(number + 1), log / record_name(number))
    (log / record_name(7)).unlink()
    assert refusal(log).where == (record_name(index) if index < 7 else HEAD)


@pytest.mark.parametrize("index", range(8))
def test_a_duplicated_record_is_found(log: Path, index: int) -> None:
    shutil.copyfile(log / record_name(index), log / record_name(8))
    assert refusal(log).where == record_name(8)


@pytest.mark.parametrize("kept", range(8))
def test_a_tail_that_was_cut_off_is_found_by_head(log: Path, kept: int) -> None:
    for path in record_files(log)[kept:]:
        path.unlink()
    assert refusal(log).where == HEAD


def test_a_renamed_record_is_found(log: Path) -> None:
    (log / record_name(7)).rename(log / record_name(9))
    assert refusal(log).where == record_name(9)


def test_a_fork_is_found_whichever_branch_lies_there(log: Path) -> None:
    """Somebody keeps the log up to a record and lets another run follow it."""
    records = read_records(log)
    write_log(log, [*records[:6], *records[:2]])
    assert "starts twice" in refusal(log).message
    other = json.loads(json.dumps(records[6:8]))
    for record in other:
        record["run_id"] = "another-run"
    other[1]["body"]["report"]["run_id"] = "another-run"
    write_log(log, [*records[:6], *other])
    branch = [path.read_bytes() for path in record_files(log)[6:]]
    verified(log)
    write_log(log, records)
    (log / record_name(6)).write_bytes(branch[0])
    assert refusal(log).where == record_name(7)
    (log / record_name(7)).write_bytes(branch[1])
    assert refusal(log).where == HEAD


@pytest.mark.parametrize(
    "name", ["notes.json", "00000008.json", "-1.json", "0000000x.json", "000000007.json"]
)
def test_a_stray_json_file_is_found(log: Path, name: str) -> None:
    (log / name).write_text("{}")
    assert name in (refusal(log).where or "") or refusal(log).where == record_name(0)


def test_other_files_in_the_directory_do_no_harm(log: Path) -> None:
    for name in (".00000008.json.0011223344556677.tmp", ".HEAD.1.tmp", "README", "notes.jsonl", "copy.json~"):
        (log / name).write_text("left behind by a crash")
    assert len(verified(log).hashes) == 8


def test_a_missing_head_is_found(log: Path) -> None:
    (log / HEAD).unlink()
    assert refusal(log).where == HEAD


@pytest.mark.parametrize(
    "content",
    [
        "",
        "8",
        "8 {hash}",
        "8 {hash}\n\n",
        "8 {hash}\n ",
        " 8 {hash}\n",
        "08 {hash}\n",
        "+8 {hash}\n",
        "8  {hash}\n",
        "8 {upper}\n",
        "8 {zeros}\n",
        "7 {hash}\n",
        "9 {hash}\n",
        "0 {zeros}\n",
        "\N{ARABIC-INDIC DIGIT EIGHT} {hash}\n",
        "800000000 {hash}\n",
    ],
)
def test_a_head_that_says_anything_else_is_found(log: Path, content: str) -> None:
    last = (log / HEAD).read_text().split()[1]
    text = content.format(hash=last, upper=last.upper(), zeros="0" * 64)
    (log / HEAD).write_text(text)
    assert refusal(log).where == HEAD


def test_a_head_two_records_behind_is_found_and_one_behind_is_a_note(log: Path) -> None:
    hashes = verified(log).hashes
    (log / HEAD).write_bytes(Link(7, hashes[6]).encode())
    assert any("one record behind" in note for note in verified(log).notes)
    (log / HEAD).write_bytes(Link(6, hashes[5]).encode())
    assert refusal(log).where == HEAD


@pytest.mark.parametrize("name", [record_name(4), HEAD])
@pytest.mark.parametrize("kind", ["link", "directory", "pipe", "link to itself"])
def test_what_is_no_plain_file_is_refused_and_not_waited_for(log: Path, name: str, kind: str) -> None:
    path = log / name
    path.rename(log / "moved")
    if kind == "link":
        path.symlink_to(log / "moved")
    elif kind == "directory":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(path)
    found = refusal(log)
    assert found.where == name
    assert "not a regular file" in found.message


@pytest.mark.parametrize("kind", ["link", "directory", "pipe"])
def test_an_artefact_that_is_no_plain_file_is_refused(log: Path, kind: str) -> None:
    path = next(path for path in (log / "artifacts").rglob("*") if path.is_file())
    path.rename(log / "moved")
    if kind == "link":
        path.symlink_to(log / "moved")
    elif kind == "directory":
        path.mkdir()
    else:
        os.mkfifo(path)
    assert path.name in (refusal(log).where or "")


def test_an_artefact_that_is_gone_is_counted_and_not_refused(log: Path) -> None:
    path = next(path for path in (log / "artifacts").rglob("*") if path.is_file())
    path.unlink()
    assert verified(log).artifacts_missing == 1


@pytest.mark.parametrize("name", [record_name(1), HEAD])
def test_a_file_of_a_terabyte_is_refused_by_its_size(log: Path, name: str) -> None:
    os.truncate(log / name, 1 << 40)
    assert refusal(log).where == name


@pytest.mark.parametrize(
    ("found", "put"),
    [
        ('{"body":', '{ "body":'),
        ('"kind":"run.finished"', '"kind":"run.finished","kind":"run.finished"'),
        ('"mean_score":0.3125', '"mean_score":0.31250'),
        ('"units":4', '"units":4.0'),
        ('"schema":"codegenie.eval.record/2"}', '"schema":"codegenie.eval.record/2","x":1}'),
        ('"schema":"codegenie.eval.record/2"}', '"schema":"codegenie.eval.record/3"}'),
        ('"schema":"codegenie.eval.record/2"}', '"schema_id":"codegenie.eval.record/2"}'),
        ('"total_cost_usd":null', '"total_cost_usd":NaN'),
        ('"passed":true', '"passed":1'),
        ('"complete":true', '"complete":"true"'),
        ('"detail":"long lines"', '"detail":"long\\u0020lines"'),
        ("Z", "+00:00"),
    ],
)
def test_another_spelling_of_a_record_is_refused_even_with_right_hashes(
    log: Path, found: str, put: str
) -> None:
    """The last record is respelled and HEAD follows: there is one way to write a record."""
    path = log / record_name(LAST)
    text = path.read_text()
    assert found in text
    path.write_text(text.replace(found, put, 1))
    (log / HEAD).write_bytes(Link(8, record_hash(path.read_bytes())).encode())
    assert refusal(log).where == record_name(LAST)


# --- the outcome store -----------------------------------------------------------------------------

PLACE = Place("built-class", "passed")
INGREDIENTS = {"input": "a" * 64, "trial": 0}
VALUE = canonical_json({"answer": list(VERDICTS["passed"]["breakdown"]), "score": 0.75})


@LAW
@given(place=st.integers(0), bit=st.integers(0, 7))
def test_any_flipped_bit_of_a_stored_outcome_is_a_miss(tmp_path: Path, place: int, bit: int) -> None:
    store = OutcomeStore(tmp_path)
    store.put("scores", PLACE, INGREDIENTS, VALUE)
    path = store.path("scores", PLACE, INGREDIENTS)
    raw = path.read_bytes()
    assert store.get("scores", PLACE, INGREDIENTS) == VALUE
    path.write_bytes(flipped(raw, place % len(raw), bit))
    assert store.get("scores", PLACE, INGREDIENTS) == Miss(damaged=True)


@LAW
@given(content=st.binary(max_size=64))
def test_what_is_kept_under_its_hash_is_what_is_read(tmp_path: Path, content: bytes) -> None:
    store = ArtifactStore(tmp_path)
    assert store.read(store.keep(content)) == content


def test_the_canonical_form_of_a_record_is_the_only_one_that_is_hashed(log: Path) -> None:
    for path in record_files(log):
        assert canonical_json(json.loads(path.read_bytes())) == path.read_bytes()
