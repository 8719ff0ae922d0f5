"""What is read from the files of a bench, and where a refusal points."""

import pytest

from codegenie.eval.bench.grammar import (
    CaseHead,
    digest_lines,
    inspect_breakdown_keys,
    inspect_case,
    inspect_digests,
    inspect_registration,
    inspect_taxonomy,
    read_breakdown_keys,
    read_digests,
    read_registration,
    read_taxonomy,
)
from codegenie.eval.errors import (
    BreakdownKeysInvalid,
    DigestManifestInvalid,
    FailureModeTaxonomyInvalid,
    RegistrationInvalid,
)
from codegenie.eval.limits import LIMITS
from codegenie.eval.models import RUNNER_CODES
from tests.support.stub_benches import FIXTURE

HEAD = "from enum import StrEnum\n\n\nclass BreakdownKey(StrEnum):\n"


def keys(*values: str) -> bytes:
    return (HEAD + "".join(f"    K{n} = {value}\n" for n, value in enumerate(values))).encode()


def test_minimums_come_back_as_plain_numbers() -> None:
    raw = (
        b'@register_task_class("a", min_cases_for_promotion={"silver": 0x10, "gold": 1_000})\ndef a(): pass\n'
    )
    assert read_registration(raw, "a") == {"silver": 16, "gold": 1000}
    assert read_registration(b'@register_task_class("a")\nclass A: "doc"\n', "a") == {}


@pytest.mark.parametrize("place", ['"."', '"a"', "Path(__file__).parent", "Path((__file__)).parent"])
def test_the_own_directory_is_recognised_in_every_allowed_form(place: str) -> None:
    head = '"""Say."""\nfrom __future__ import annotations\n'
    raw = f'{head}@register_task_class("a", bench_path={place})\nclass A: pass\n'
    assert read_registration(raw.encode(), "a") == {}


@pytest.mark.parametrize(
    "place", ['"b"', '"./"', '"a/../a"', "Path(__file__)", "Path(__file__).parents", "__file__"]
)
def test_any_other_directory_is_refused_with_its_line(place: str) -> None:
    raw = f'"""Say."""\n\n@register_task_class(\n    "a",\n    bench_path={place},\n)\nclass A: pass\n'
    with pytest.raises(RegistrationInvalid) as caught:
        read_registration(raw.encode(), "a")
    assert caught.value.where == "registration.py:5"
    assert caught.value.hint


@pytest.mark.parametrize(
    ("statement", "line"),
    [("import os", 4), ("x = 1", 4), ("'a second string'", 4), ("class B: pass", 4), ("a" * 300 + "!", 4)],
)
def test_a_refusal_names_file_and_line(statement: str, line: int) -> None:
    raw = f'"""Say."""\n@register_task_class("a")\nclass A: pass\n{statement}\n'
    with pytest.raises(RegistrationInvalid) as caught:
        read_registration(raw.encode(), "a")
    assert caught.value.where == f"registration.py:{line}"


def test_a_body_of_a_docstring_and_pass_is_empty_and_one_of_two_strings_is_not() -> None:
    assert read_registration(b'@register_task_class("a")\nclass A:\n    "doc"\n    pass\n', "a") == {}
    with pytest.raises(RegistrationInvalid, match="more than a docstring or `pass`"):
        read_registration(b'@register_task_class("a")\nclass A:\n    "doc"\n    "more"\n', "a")


def test_a_long_name_is_not_repeated_in_full() -> None:
    raw = f'@register_task_class("{"x" * 9_000}")\nclass A: pass\n'
    with pytest.raises(RegistrationInvalid) as caught:
        read_registration(raw.encode(), "a")
    assert len(caught.value.message) < 200


def test_reading_a_file_with_a_doubtful_escape_warns_nobody(recwarn: pytest.WarningsRecorder) -> None:
    raw = rb'''"""A \d doubtful \escape."""
@register_task_class("a")
class A: "is 1 is 1"
'''
    assert read_registration(raw, "a") == {}
    assert not recwarn.list


def test_keys_come_back_sorted() -> None:
    assert read_breakdown_keys(keys('"b.c"', '"a"', "'z_9'")) == ("a", "b.c", "z_9")


# Ways around a ban that looks at text or at values (threats BL-09), and what must be said of each.
BYPASSES = {
    '"c\N{CYRILLIC SMALL LETTER O}nfidence"': "does not match",
    '"con\N{LATIN SMALL LIGATURE FI}dence"': "does not match",
    '"conf\N{ZERO WIDTH JOINER}idence"': "does not match",
    '"conf\N{SOFT HYPHEN}idence"': "does not match",
    '"\N{FULLWIDTH LATIN SMALL LETTER C}onfidence"': "does not match",
    '"confid\N{COMBINING DOT ABOVE}ence"': "does not match",
    '"SELF-REPORTED"': "does not match",
    '"Confidence"': "does not match",
    '"confidence "': "does not match",
    '"confidence\\n"': "does not match",
    r'"\x63onfidence"': "'confidence'",
    r'"\N{LATIN SMALL LETTER C}onfidence"': "'confidence'",
    '"conf" "idence"': "'confidence'",
    '"con.fi.dence"': "'confidence'",
    '"self.reported"': "'self_reported'",
    '"modelsays"': "'model_says'",
    '"ecnedifnoc"[::-1]': "NAME = ",
    '"conf" + "idence"': "NAME = ",
    'f"{A}"': "NAME = ",
    '"confidence".lower()': "NAME = ",
    'b"confidence"': "NAME = ",
}


@pytest.mark.parametrize(("value", "says"), BYPASSES.items(), ids=map(ascii, BYPASSES))
def test_a_way_around_the_ban_is_refused(value: str, says: str) -> None:
    with pytest.raises(BreakdownKeysInvalid, match=says) as caught:
        read_breakdown_keys(keys('"fine"', value))
    assert caught.value.where == "breakdown_keys.py:6"
    assert caught.value.message.isascii()


def test_as_many_keys_are_allowed_as_an_answer_may_hold() -> None:
    most = [f'"k{n}"' for n in range(LIMITS.breakdown_keys)]
    assert len(read_breakdown_keys(keys(*most))) == LIMITS.breakdown_keys
    with pytest.raises(BreakdownKeysInvalid, match="257"):
        read_breakdown_keys(keys(*most, '"one_more"'))


def test_the_taxonomy_comes_back_sorted_and_stripped() -> None:
    raw = (
        FIXTURE / "failure_modes.yaml"
    ).read_bytes() + b"a.a: {severity: warn, description: '  two words '}\n"
    taxonomy = read_taxonomy(raw)
    assert list(taxonomy) == sorted([*RUNNER_CODES, "a.a", "answer.wrong"])
    assert taxonomy["a.a"].severity.value == "warn"
    assert taxonomy["a.a"].description == "two words"


@pytest.mark.parametrize("code", sorted(RUNNER_CODES))
@pytest.mark.parametrize("severity", ["warn", "info"])
def test_none_of_the_seven_codes_can_be_lowered_or_left_out(code: str, severity: str) -> None:
    text = (FIXTURE / "failure_modes.yaml").read_text(encoding="utf-8")
    lowered = text.replace(f"{code}:\n  severity: block", f"{code}:\n  severity: {severity}")
    with pytest.raises(FailureModeTaxonomyInvalid, match=f"lowers {code} to {severity}"):
        read_taxonomy(lowered.encode())
    with pytest.raises(FailureModeTaxonomyInvalid, match=f"internal code {code}"):
        read_taxonomy(text.replace(f"{code}:", "other.code:").encode())


def test_a_large_list_of_digests_is_read_in_the_form_in_which_it_is_written() -> None:
    lines = "".join(f"case_{n:06}: blake3:{n:064x}\n" for n in range(20_000))
    assert len(lines) > LIMITS.yaml_bytes
    digests = read_digests(lines.encode())
    assert len(digests) == 20_000
    assert digests["case_000255"] == f"{255:064x}"


@pytest.mark.parametrize("extra", ["# a comment\n", "case_000007: blake3:" + "0" * 64 + "\n", "\n"])
def test_a_large_list_in_any_other_form_is_refused(extra: str) -> None:
    lines = "".join(f"case_{n:06}: blake3:{n:064x}\n" for n in range(20_000))
    with pytest.raises(DigestManifestInvalid) as caught:
        read_digests((lines + extra).encode())
    assert "codegenie eval digest" in (caught.value.hint or "")


def test_every_problem_of_a_file_is_found_with_its_line() -> None:
    options = 'bench_path="..", min_cases_for_promotion={"s": 0, "t": -1}'
    registration = f'import os\nx = 1\n@register_task_class("b", {options})\nclass A(B): pass\n'.encode()
    modes = FIXTURE.joinpath("failure_modes.yaml").read_bytes() + b"A: {}\na: x\nb: {severity: warn}\n"

    found = [
        [problem.line for problem in inspect_registration(registration, "a").problems],
        [problem.line for problem in inspect_breakdown_keys(keys('"fine"', '"llm"', "1", '"A"')).problems],
        [problem.line for problem in inspect_taxonomy(modes).problems],
        [
            problem.line
            for problem in inspect_digests(b"# x\na: b\nb: blake3:" + b"0" * 64 + b"\nc: d\n").problems
        ],
        [problem.line for problem in inspect_taxonomy(b"a: b\nc: d: e\n").problems],
        [problem.line for problem in inspect_taxonomy(b"a: b\nc: \xff\n").problems],
    ]

    assert found == [[1, 2, 4, 3, 3, 3, 3], [6, 7, 8], [27, 28, 29], [2, 4], [2], [2]]


def test_what_could_be_read_comes_with_the_problems() -> None:
    reading = inspect_taxonomy(FIXTURE.joinpath("failure_modes.yaml").read_bytes() + b"a: x\n")
    assert reading.value is not None
    assert reading.value.keys() == {*RUNNER_CODES, "answer.wrong"}
    digests = inspect_digests(b"a: b\nb: blake3:" + b"0" * 64 + b"\n")
    assert (digests.value, len(digests.problems)) == ({"b": "0" * 64}, 1)


def test_every_field_of_a_case_that_is_wrong_is_found_on_its_line() -> None:
    head = 'case_id = "b"\ntask_class = "x"\nsource = "heaven"\nweight = 1\n'
    raw = f'{head}added_at = 2026-11-15\ndigest = "0"\n'.encode()
    problems = inspect_case(CaseHead(raw, "0" * 64, "0" * 64), "t", "a", ["a", "b"]).problems

    assert [(problem.message.partition(":")[0].partition(" ")[0], problem.line) for problem in problems] == [
        ("case_id", 1),
        ("case", 2),
        ("digest", 6),
        ("disposition", None),
        ("difficulty", None),
        ("source", 3),
        ("curation_class", None),
        ("last_validated_at", None),
        ("weight", 4),
    ]


@pytest.mark.parametrize("head", ["", "# by hand\n"])
def test_the_lines_of_digests_are_known_in_either_form(head: str) -> None:
    text = f"{head}a: blake3:{'0' * 64}\nb: blake3:{'1' * 64}\n"
    first = 1 + head.count("\n")

    assert digest_lines(text.encode()) == {"a": first, "b": first + 1}
    assert digest_lines(b"- a\n") == {}
