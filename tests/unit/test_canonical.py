"""One spelling, one digest."""

import pytest
from blake3 import blake3

from codegenie.eval.canonical import TreeHasher, canonical_json, canonical_pieces, digest_fields, digest_json


def test_equal_values_have_equal_bytes_in_any_order_of_keys() -> None:
    assert canonical_json({"b": 1, "a": [True, None, "é"]}) == '{"a":[true,null,"é"],"b":1}'.encode()
    assert digest_json("x", {"a": 1, "b": 2}) == digest_json("x", {"b": 2, "a": 1})


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_a_number_that_json_does_not_have_is_refused(number: float) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        canonical_json([number])


def test_fields_are_framed_so_that_none_runs_into_the_next() -> None:
    digests = {
        digest_fields("x", fields) for fields in ([b"ab", b"c"], [b"a", b"bc"], [b"abc"], [b"abc", b""])
    }
    assert len(digests) == 4


def test_a_purpose_is_part_of_a_digest() -> None:
    assert digest_json("one", 1) != digest_json("two", 1)


def test_the_digest_of_a_tree_is_what_the_reference_page_says() -> None:
    hasher = TreeHasher("case.v1")
    hasher.begin("a/b", 3, executable=True)
    hasher.content(b"x")
    hasher.content(b"yz")
    framed = b"codegenie.eval/case.v1\n" + (3).to_bytes(8, "big") + b"a/bx" + (3).to_bytes(8, "big") + b"xyz"
    assert hasher.hexdigest() == blake3(framed).hexdigest()


@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_document_in_pieces_has_the_one_spelling(count: int) -> None:
    items = [{"b": "\N{SNOWMAN}", "a": number} for number in range(count)]
    document = {"z": "\ud800one", "a": {"m": "\ud800two", "x": 1}}
    pieces = canonical_pieces(
        document, {"\ud800two": map(canonical_json, items), "\ud800one": map(canonical_json, items)}
    )
    assert b"".join(pieces) == canonical_json({"z": items, "a": {"m": items, "x": 1}})


def test_a_text_that_looks_like_a_place_is_written_nowhere() -> None:
    with pytest.raises(UnicodeEncodeError):
        b"".join(canonical_pieces({"a": "\ud800list", "b": "\ud800list"}, {"\ud800list": []}))
