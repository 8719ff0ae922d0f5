"""Bytes that were found interesting: every reader takes them and keeps its law, or refuses them by type."""

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scripts import fuzz
from tests.support.corpus import CORPUS, READERS, Reader, corpus_files, faults

ROOMS = ("json", "log", "python", "rubric_output", "toml", "yaml")
ENOUGH = 8
# A file that each reader takes, and what it then says: refusing everything would be lawful, and show nothing.
TAKEN: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "json": ("json/object", lambda value: value["b"] == {}),
    "json of few keys": ("json/object", lambda value: len(value["a"]) == 6),
    "toml": ("toml/array-of-tables", lambda value: len(value["a"]) == 2),
    "yaml": ("yaml/block", lambda value: value["b"] == "folded text"),
    "yaml with lines": ("yaml/block", lambda pair: pair[1] == {"a": 1, "b": 4}),
    "yaml with numbers": ("yaml/numbers", lambda value: (value["a"], value["g"]) == (-1, "1")),
    "taxonomy": ("yaml/taxonomy", lambda taxonomy: "sut.timeout" in taxonomy),
    "digests": ("yaml/digests-by-yaml", lambda digests: len(digests) == 12),
    "policy": ("yaml/policy", lambda policy: policy.thresholds["gold"] == 0.9),
    "case": ("toml/case", lambda case: case.difficulty == "easy"),
    "registration": ("python/registration", lambda minimums: minimums == {"bronze": 8}),
    "breakdown keys": ("python/breakdown-keys", lambda keys: keys == ("fixed", "minimal", "parses")),
    "rubric source": ("python/coding-utf8", lambda nothing: nothing is None),
    "rubric output": ("rubric_output/perfect", lambda answer: answer.passed),
    "file of an agent": ("toml/sut", lambda spec: spec.broker.prices.output == 15),
    "statement of an agent": ("json/stated", lambda stated: stated[1].cost_usd == 0.5),
    "result of an agent": ("rubric_output/result", lambda answer: answer.cost_usd == 0.25),
    "exception of an agent": ("rubric_output/raised", lambda fault: "ValueError" in fault.detail),
    "first record": ("log/started", lambda record: record.index == 0),
    "second record": ("log/finished", lambda record: record.index == 1),
    "record": ("log/exam", lambda record: record.index == 6),
    "index of a recording": ("log/recording", lambda read: read[0].outputs.keys() == {"one/0"}),
    "recorded trial": ("log/recorded-trial", lambda trial: trial.fault is None and trial.cost_usd == 0.25),
    "head": ("log/head", lambda link: link.count == 7),
    "journal": ("log/journal", lambda lines: len(lines) == 2 and lines[0].value["run_id"] == "run-1"),
}


def fragile(raw: bytes) -> object:
    """Fail as no reader may: by an error that is not ours."""
    if b"\x7f" in raw:
        raise KeyError("by accident")
    return json.loads("{}")


def fails(*_: object) -> bool:
    raise KeyError("gone")


def turn_round(_: bytes) -> object:
    while True:
        pass


FRAGILE = {"fragile": Reader(fragile, lambda _, __: True)}


@pytest.mark.parametrize("file", corpus_files(), ids=lambda file: file.relative_to(CORPUS).as_posix())
def test_a_file_of_the_corpus_is_taken_lawfully_or_refused_by_type(file: Path) -> None:
    assert faults(file.read_bytes()) == []


def test_every_kind_of_input_has_its_files() -> None:
    found = {room: len(corpus_files(CORPUS / room)) for room in ROOMS}

    assert sorted(path.name for path in CORPUS.iterdir()) == list(ROOMS)
    assert {room: count for room, count in found.items() if count < ENOUGH} == {}


def test_every_reader_has_a_file_that_it_takes() -> None:
    assert TAKEN.keys() == READERS.keys()


@pytest.mark.parametrize("name", READERS)
def test_a_reader_takes_what_it_is_there_for(name: str) -> None:
    file, says = TAKEN[name]

    assert says(READERS[name].read((CORPUS / file).read_bytes()))


@pytest.mark.parametrize(
    ("reader", "fault"),
    [
        (Reader(fails, lambda _, __: True), "planted: KeyError: 'gone'"),
        (Reader(lambda raw: raw, lambda _, __: False), "planted: takes it and breaks its law"),
        (Reader(lambda raw: raw, fails), "planted: KeyError: 'gone'"),
    ],
    ids=["an error that is not ours", "a broken law", "a law that fails"],
)
def test_a_reader_that_fails_otherwise_is_found(reader: Reader, fault: str) -> None:
    assert faults(b"{}", {"planted": reader}) == [fault]


# The fuzzer.


def test_the_same_seed_gives_the_same_mutations_and_another_one_others() -> None:
    first, again, other = (
        [raw for _, raw in itertools.islice(fuzz.mutations(corpus_files(), seed), 200)] for seed in (1, 1, 2)
    )

    assert first == again
    assert first != other
    assert len(set(first)) > 150


def test_a_fault_is_stored_small_beside_the_file_that_it_was_made_from(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "json").mkdir()
    (tmp_path / "json" / "long").write_bytes(b'{"a": "' + b"long " * 50 + b'\x7e"}')

    status = fuzz.fuzz(fuzz.Plan(seed=7, seconds=60.0, corpus=tmp_path, readers=FRAGILE))

    (found,) = tmp_path.glob("json/found-*")
    assert status == 1
    assert found.read_bytes() == b"\x7f"
    assert "fragile: KeyError: 'by accident'" in capsys.readouterr().out


def test_a_fuzzer_that_finds_nothing_ends_by_itself_and_stores_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "json").mkdir()
    (tmp_path / "json" / "valid").write_bytes(b"{}")

    assert fuzz.fuzz(fuzz.Plan(seed=7, seconds=1.0, corpus=tmp_path, readers=READERS)) == 0
    assert [path.name for path in corpus_files(tmp_path)] == ["valid"]
    assert "no fault" in capsys.readouterr().out


def test_a_reader_that_takes_too_long_is_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzz, "SLOW_SECONDS", 0.2)
    endless = {"endless": Reader(turn_round, lambda _, __: True)}
    (tmp_path / "json").mkdir()
    (tmp_path / "json" / "valid").write_bytes(b"{}")

    assert fuzz.timed_faults(b"{}", endless) == ["endless: takes more than 0.2 s"]
