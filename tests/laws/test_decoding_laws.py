"""What the strict decoder takes is what the plain parsers read; everything else it refuses by type."""

import json
import tomllib
from itertools import product
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from codegenie.eval import decoding
from codegenie.eval.decoding import decode_json, decode_toml, decode_yaml
from codegenie.eval.errors import DecodingRefused
from tests.laws.near_misses import Changes, changes, edited, examples, near_yaml

LIMIT = 1 << 16

scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text()


def trees(leaves: st.SearchStrategy[Any], keys: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
    """Draw values nested up to three levels deep."""
    drawn = leaves
    for _ in range(3):
        drawn = leaves | st.lists(drawn, max_size=4) | st.dictionaries(keys, drawn, max_size=4)
    return drawn


json_values = trees(scalars, st.text())
near_json = st.builds(
    lambda value, ascii_only, made: edited(
        json.dumps(value, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass"), made
    ),
    json_values,
    st.booleans(),
    changes,
)


@examples(200)
@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode) | near_json)
@example(b'{"a": 1, "a": 1}')
@example(b'"\\ud800"')
@example(b"[" * 60_000)
@example(b"1" * 4_500)
@example(b"1e999")
@example(b"[NaN]")
def test_json_is_refused_or_read_as_the_standard_library_reads_it(raw: bytes) -> None:
    try:
        value = decode_json(raw, LIMIT)
    except DecodingRefused:
        return
    # `repr` also tells 1, 1.0 and True apart.
    assert repr(value) == repr(json.loads(raw.decode()))
    objects: list[list[tuple[str, object]]] = []
    json.loads(raw.decode(), object_pairs_hook=objects.append)
    assert all(len(dict(pairs)) == len(pairs) for pairs in objects)


whole_characters = st.text(st.characters(exclude_categories=["Cs"]))
strict_values = trees(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | whole_characters,
    whole_characters,
)


@examples(100)
@given(strict_values)
def test_every_finite_json_value_is_taken(value: object) -> None:
    assert repr(decode_json(json.dumps(value).encode(), 1 << 20)) == repr(value)


KEYS = ["a", "case_id", "b-2", '"quoted"', "a.b", "'x'", "1"]
VALUES = r"""
"text" 'lit' "es\tc" "\u00e9" 2026-11-15 2026-02-30 0 007 18 -1 1_0 1.5 true inf [1,2] {a=1} \"""x\"""
2026-11-15T01:02:03 07:32:00 0x10 "" ''' "a 1e5 999999999999999999 99999999999999999999 2026-1-1
"""
TOML_VALUES = [*VALUES.replace(r"\"", '"').split(), '"\u00e9\u2028"', "1 2", '"a b"', '"\x7f"', "'\x1f'"]
BLANKS = ["", " ", "\t", "  \t "]
ENDS = ["", "# comment", "#\t\u2028.", "\r", "# \x07", "# \x7f", "\x0c", " x"]

toml_lines = st.builds(
    "{}{}={}{}{}{}".format,
    *map(st.sampled_from, (BLANKS, KEYS, BLANKS, TOML_VALUES, BLANKS, ENDS)),
)
toml_texts = st.lists(
    toml_lines | st.sampled_from([*ENDS, "[t]", "[[t]]", "\x00", "\u2028"]), max_size=6
).map("\n".join)


def finite(value: object) -> bool:
    if isinstance(value, dict):
        return all(map(finite, value.values()))
    return value not in {float("inf"), float("-inf")} if isinstance(value, float) else True


HIDDEN_LINE_ENDS = set("\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029")


def shows_every_line_end(text: str) -> bool:
    return not HIDDEN_LINE_ENDS & set(text) and "\r" not in text.replace("\r\n", "\n")


def same_as_tomllib(raw: bytes) -> bool:
    """Say whether both refuse, or both mean the same; we alone refuse what a diff does not show."""
    try:
        text = raw.decode()
        plain = tomllib.loads(text)
        shown = shows_every_line_end(text) and not text.startswith("\N{ZERO WIDTH NO-BREAK SPACE}")
        expected = repr(plain) if finite(plain) and shown else "refused"
    except ValueError:
        expected = "refused"
    try:
        return repr(decode_toml(raw)) == expected
    except DecodingRefused:
        return expected == "refused"


def test_every_toml_line_of_a_key_and_a_value_means_what_tomllib_says() -> None:
    parts = product(BLANKS, KEYS, TOML_VALUES, ENDS)
    lines = [f"{blank}{key}{blank}={blank}{value}{blank}{end}" for blank, key, value, end in parts]
    assert [line for line in lines if not same_as_tomllib(line.encode())] == []


@examples(200)
@given(toml_texts | st.text(max_size=60), changes)
@example("a = 1\r\nb = 2\r\n", [])
@example("a = 1\rb = 2", [])
@example("a = 1\na = 1", [])
def test_toml_is_taken_exactly_when_tomllib_takes_it_and_means_the_same(text: str, made: Changes) -> None:
    assert same_as_tomllib(edited(text.encode("utf-8", "surrogatepass"), made))


Loader = type[yaml.BaseLoader]
each_parser = pytest.mark.parametrize(
    "loader", [yaml.CBaseLoader, yaml.BaseLoader], ids=["libyaml", "pure Python"]
)


def decode_with(loader: Loader, raw: bytes) -> object:
    """Decode as on a machine that has this parser."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decoding, "_YAML_LOADER", loader)
        return decode_yaml(raw, LIMIT)


def keys_are_unique(node: yaml.Node | None) -> bool:
    if isinstance(node, yaml.MappingNode):
        names = [key.value for key, _ in node.value]
        return len(set(names)) == len(names) and all(keys_are_unique(value) for _, value in node.value)
    return not isinstance(node, yaml.SequenceNode) or all(map(keys_are_unique, node.value))


YAML_WORDS = r"""a|b|: |- |\n|  |{|}|[|]|,|&x |*x|!t |? |<<|'|"|#|>\n|---\n|...\n|%YAML 1.1\n|\t|\x85|\x00"""
yaml_words = st.sampled_from(
    [*YAML_WORDS.encode().decode("unicode_escape").split("|"), "|\n", "\\ud800", "\\UFFFFFFFF"]
)
yaml_soup = st.lists(yaml_words, max_size=20).map(lambda words: "".join(words).encode())


@each_parser
@examples(200)
@given(st.binary(max_size=60) | near_yaml | yaml_soup)
@example(b"[" * 3_000)
@example(b"- " * 3_000)
@example(b'"\\ud800"')
@example(b'"\\UFFFFFFFF"')
@example(b"a: b\na: c")
def test_yaml_is_refused_or_read_as_strings_under_unique_keys(loader: Loader, raw: bytes) -> None:
    try:
        value = decode_with(loader, raw)
    except DecodingRefused:
        return
    json.dumps(value, ensure_ascii=False).encode()  # whole characters only
    assert value == yaml.load(raw.decode(), Loader=loader)  # noqa: S506 - builds strings only
    assert keys_are_unique(yaml.compose(raw.decode(), Loader=loader))


plain_words = st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1)
plain_trees = trees(plain_words, plain_words)


@each_parser
@examples(100)
@given(plain_trees, st.booleans())
def test_every_tree_of_plain_words_is_taken(loader: Loader, tree: object, flow: bool) -> None:
    assert decode_with(loader, yaml.safe_dump(tree, default_flow_style=flow).encode()) == tree
