"""The document that a rubric judges holds what was collected, within the cap of an output."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codegenie.eval.collection.document import harness_output
from codegenie.eval.collection.records import Collected, original_of
from codegenie.eval.decoding import decode_json
from codegenie.eval.limits import LIMITS, MIB
from codegenie.eval.system.child_files import stream_file
from codegenie.eval.system.packed_tree import Packer, content_of, files_of, paths_of

WORDS = {"exit_code": 0, "stdout_tail": "done"}
LINK = {"kind": "symlink", "target": "/"}


def read(output: bytes) -> dict[str, Any]:
    document: dict[str, Any] = decode_json(output, LIMITS.sut_output_bytes)
    return document


def test_a_small_work_is_in_the_document_as_a_whole() -> None:
    collected = Collected({"a": "x", "b": None}, {"c": LINK}, b"patch", {}, ())
    written = harness_output(collected, WORDS)

    assert read(written.output) == {
        "diff": "patch",
        "exit_code": 0,
        "files": {"a": "x", "b": None},
        "other": {"c": LINK},
        "stdout_tail": "done",
    }
    assert written.notes == ()


def test_what_the_harness_collected_stands_before_what_the_agent_said() -> None:
    said = {"files": {}, "diff": "a lie", "other": "a lie", "answer": 42}
    document = read(harness_output(Collected({"a": "x"}, {}, b"patch"), said).output)

    assert document == {"answer": 42, "diff": "patch", "files": {"a": "x"}, "other": {}}


def test_a_patch_that_does_not_fit_is_left_out_before_any_file() -> None:
    collected = Collected({"a": "x" * 9 * MIB}, {"c": LINK}, b"+" * 8 * MIB)
    written = harness_output(collected, WORDS)

    assert read(written.output)["files"] == collected.files
    assert (read(written.output)["diff"], read(written.output)["other"]) == ("", {"c": LINK})
    assert [note.split(",")[0] for note in written.notes] == [
        f"the patch is beyond the {LIMITS.sut_output_bytes} bytes of the output"
    ]


def test_a_text_that_grows_in_json_is_moved_to_other() -> None:
    # A control character takes six bytes in JSON.
    collected = Collected({"deleted": None, "large": "\x01" * 8 * MIB, "small": "x"}, {})
    written = harness_output(collected, WORDS)

    assert read(written.output)["files"] == {"deleted": None, "small": "x"}
    assert read(written.output)["other"] == {"large": {"kind": "over_total", "size": 8 * MIB}}
    assert written.notes[0].startswith("over_total: 1 files are beyond")


def test_more_names_than_fit_are_counted() -> None:
    other = {f"{number:05}{'é' * 480}": {"kind": "odd_name"} for number in range(20_000)}
    written = harness_output(Collected({}, other), WORDS)
    named = len(read(written.output)["other"])

    assert 0 < named < 20_000
    (note,) = written.notes
    assert note.startswith(f"{20_000 - named} entries are not named: they are beyond the ")


def test_words_that_leave_no_room_stand_alone() -> None:
    words = {"answer": "x" * (LIMITS.sut_output_bytes - 14)}
    written = harness_output(Collected({"a": "x"}, {}), words)

    assert read(written.output) == words
    assert written.notes == ("nothing of what was collected fits into the output",)


texts = st.text(max_size=40)
collections = st.builds(
    Collected,
    st.dictionaries(texts, st.none() | texts, max_size=5),
    st.dictionaries(texts, st.fixed_dictionaries({"kind": texts}), max_size=5),
    texts.map(str.encode),
)


@given(collections, st.integers(0, 400))
def test_whatever_was_collected_the_document_is_within_its_cap(collected: Collected, cap: int) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(
            "codegenie.eval.collection.document.LIMITS", type("Small", (), {"sut_output_bytes": cap})
        )
        written = harness_output(collected, {})

    assert len(written.output) <= max(cap, len(b"{}"))
    document = json.loads(written.output)
    if not written.notes:
        assert (document["files"], document["other"]) == (collected.files, collected.other)
        assert document["diff"].encode() == collected.patch


def test_the_original_files_are_read_from_a_parcel() -> None:
    with stream_file() as descriptor:
        packer = Packer(descriptor)
        packer.directory("d")
        packer.file("d/run", 3, [b"a", b"bc"], executable=True)
        packer.file("empty", 0, [])
        packer.close()
        files = list(files_of(descriptor))
        contents = [content_of(descriptor, path) for path in ("d/run", "empty", "d", "run")]
        paths = paths_of(descriptor)

    assert files == [("d/run", b"abc", True), ("empty", b"", False)]
    assert paths == ["d/run", "empty"]
    assert contents == [b"abc", b"", None, None]
    assert original_of(files)["d/run"].executable
