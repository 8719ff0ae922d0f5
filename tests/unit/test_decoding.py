"""The strict decoder at its edges."""

import time
import tomllib

import pytest

from codegenie.eval.decoding import decode_json, decode_text, decode_toml, decode_yaml
from codegenie.eval.errors import DecodingRefused
from codegenie.eval.limits import LIMITS

DEEPEST = LIMITS.nesting


def test_text_of_the_last_byte_is_taken_and_one_byte_more_is_not() -> None:
    assert decode_text("né".encode(), 3) == "né"
    with pytest.raises(DecodingRefused, match="4 bytes are more than the 3 allowed"):
        decode_text(b"none", 3)


@pytest.mark.parametrize(
    "raw", [b"\xef\xbb\xbf{}", b"\xff\xfe{\0}\0", b"\xc0\x80", b"\xed\xa0\x80", b"\xf5\x80\x80\x80"]
)
def test_text_in_any_other_encoding_is_refused(raw: bytes) -> None:
    with pytest.raises(DecodingRefused):
        decode_text(raw, 100)


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"", "not one JSON document"),
        (b"{} {}", "not one JSON document"),
        (b"{'a': 1}", "not one JSON document"),
        (b"[1,]", "not one JSON document"),
        (b'{"a": 1, "b": 2, "a": 1}', "key 'a' appears twice"),
        (b'[{"a": {"b": 1, "b": 1}}]', "key 'b' appears twice"),
        (b"NaN", "NaN is not a number"),
        (b"[-Infinity]", "-Infinity is not a number"),
        (b"1e400", "out of range"),
        (b"[" + b"9" * 5_000 + b"]", "4300 digits"),
        (b"9" * 1_234, "more than 4096 bits"),
        (b'"\\udead"', "half a character"),
        (b'{"\\ud800": 1}', "half a character"),
        (b"[" * 100_000, "nested too deeply"),
    ],
)
def test_json_that_no_strict_reader_takes_is_refused(raw: bytes, says: str) -> None:
    with pytest.raises(DecodingRefused, match=says):
        decode_json(raw, 1 << 20)


def test_json_of_the_largest_integer_and_a_whole_emoji_is_taken() -> None:
    assert decode_json(b"-%d" % (2**4096 - 1), 1 << 20) == 1 - 2**4096
    assert decode_json(b'"\\ud83d\\ude00"', 100) == "\N{GRINNING FACE}"


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}")])
def test_json_may_be_as_deep_as_the_limit_and_no_deeper(opening: str, closing: str) -> None:
    def nested(levels: int) -> bytes:
        return (opening * levels + "1" + closing * levels).encode()

    decode_json(nested(DEEPEST - 1), 1 << 20)
    with pytest.raises(DecodingRefused, match="32 levels"):
        decode_json(nested(DEEPEST), 1 << 20)


def test_a_flat_case_file_is_read_without_tomllib(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = b"# a case\ncase_id = \"a\" # first\n\nfamily = 'b'\nadded_at = 2026-11-15\nseconds = 60\n"
    expected = tomllib.loads(raw.decode())

    def unused(*_args: object, **_kwargs: object) -> None:
        raise AssertionError("tomllib was asked")

    monkeypatch.setattr(tomllib, "loads", unused)
    assert decode_toml(raw) == expected
    with pytest.raises(AssertionError, match="tomllib was asked"):
        decode_toml(b"a = [1]")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a = inf", "out of range"),
        ("a = [-nan]", "out of range"),
        ("a = 1e999", "out of range"),
        ("a = 0x" + "f" * 1_025, "more than 4096 bits"),
        ("a = " + "9" * 4_301, "4300 digits"),
        ("a.b.c = 1\n" + "a" + ".b" * 65 + " = 1", "more than 64 dots"),
        ('"x"' + '."\t"' * 65 + " = 1", "more than 64 dots"),
        ("a = " + "[" * 40 + "]" * 40, "32 levels"),
        ("a = " + "{a=" * 5_000, "nested too deeply"),
        ("#" * (LIMITS.toml_bytes + 1), "16385 bytes"),
    ],
)
def test_toml_over_a_cap_is_refused(text: str, says: str) -> None:
    with pytest.raises(DecodingRefused, match=says):
        decode_toml(text.encode())


def test_toml_within_the_caps_is_taken() -> None:
    text = "a" + ".b" * 20 + " = [0x" + "f" * 1_000 + ", 1.5]\n" + "# " + "x" * 9_000
    assert decode_toml(text.encode()) == tomllib.loads(text)


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ("{a: ", "}")])
def test_yaml_may_be_as_deep_as_the_limit_and_no_deeper(opening: str, closing: str) -> None:
    def nested(levels: int) -> bytes:
        return (opening * levels + closing * levels).encode()

    decode_yaml(nested(DEEPEST))
    with pytest.raises(DecodingRefused, match="32 levels"):
        decode_yaml(nested(DEEPEST + 1))


@pytest.mark.parametrize("opening", ["[", "{a: ", "- ", "? "])
def test_a_yaml_bomb_is_refused_when_it_is_too_deep_and_not_at_its_end(opening: str) -> None:
    bomb = opening.encode() * (LIMITS.yaml_bytes // len(opening))
    # The parser needs minutes for the first of these; the bound only tells minutes from no time.
    started = time.monotonic()
    with pytest.raises(DecodingRefused, match="32 levels"):
        decode_yaml(bomb)
    assert time.monotonic() - started < 60


def test_every_yaml_scalar_is_the_string_that_stands_there() -> None:
    text = "no: yes\n1: 1:30\nnull: ~\n2026-11-15: 0x10\nempty:\n\"quoted\": 'single'\n"
    assert decode_yaml(text.encode()) == {
        "no": "yes",
        "1": "1:30",
        "null": "~",
        "2026-11-15": "0x10",
        "empty": "",
        "quoted": "single",
    }


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: b\nc: d\na: e\n", "line 3: key 'a' appears twice"),
        ("a: b\nb: &x c\n", "line 2: anchors"),
        ("a: b\nb: *x\n", "line 2: anchors"),
        ("a: !!str b\n", "line 1: tags"),
        ("! a: b\n", "line 1: tags"),
        ("a: b\n<<: {c: d}\n", "line 2: merge keys"),
        ("{a: b}: c\n", "line 1: a key is not"),
        ("a: b\n---\nc: d\n", "more than one"),
        ("\n# x\n", "the file is empty"),
        ("a: b\n  c: d\n", "not YAML: line 2: mapping values"),
    ],
)
def test_yaml_beyond_mappings_lists_and_strings_is_refused_with_its_line(text: str, says: str) -> None:
    with pytest.raises(DecodingRefused, match=says):
        decode_yaml(text.encode())


def test_a_refusal_of_yaml_does_not_quote_the_file() -> None:
    with pytest.raises(DecodingRefused) as caught:
        decode_yaml(b"a: b\nSECRET: x: y\n")
    assert "SECRET" not in str(caught.value)


@pytest.mark.parametrize("end", ["\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\u2029", "\r"])
def test_a_comment_cannot_end_where_no_editor_shows_it(end: str) -> None:
    hidden = f"# agreed{end}alpha: 0.2{end}".encode()
    with pytest.raises(DecodingRefused, match="line 2: holds a line end that is not shown as one"):
        decode_yaml(b"thresholds: x\n" + hidden)
    with pytest.raises(DecodingRefused, match="not shown as one"):
        decode_toml(b"a = 1\n" + hidden)


def test_the_line_ends_that_everybody_shows_are_taken() -> None:
    assert decode_yaml(b"a: b\r\nc: d\n") == {"a": "b", "c": "d"}


# Counting before building.


@pytest.mark.parametrize(
    ("raw", "values"),
    [(b"[]", 1), (b"[[],[]]", 4), (b'{"a":[1,2]}', 3), (b'["[,{\\"[,{",",,"]', 2), (b"7", 0), (b'",,,"', 0)],
)
def test_the_last_value_is_taken_and_one_more_is_not(raw: bytes, values: int) -> None:
    decode_json(raw, 100, values)
    if values:
        with pytest.raises(DecodingRefused, match=f"more than {values - 1} values"):
            decode_json(raw, 100, values - 1)


def test_commas_in_an_agents_text_are_no_values() -> None:
    assert decode_json(b'["' + b"," * 2 * LIMITS.json_values + b'"]', 10**7)


@pytest.mark.parametrize(
    "raw", [b'"' + b'\\",' * 10**6, b'["' + b"\\," * 10**6, b'"' * 10**6 + b",,,,,", b'",,,,,\\']
)
def test_strings_that_never_end_are_counted_once(raw: bytes) -> None:
    began = time.monotonic()
    with pytest.raises(DecodingRefused):
        decode_json(raw, 10**8, 4)
    assert time.monotonic() - began < 60


def test_a_yaml_file_of_countless_values_is_refused() -> None:
    raw = b"[" + b"a," * LIMITS.json_values + b"a]"
    with pytest.raises(DecodingRefused, match="more than 500000 values"):
        decode_yaml(raw, len(raw))
