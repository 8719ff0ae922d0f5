"""Whatever a bench or a system under test writes: nothing of it steers a terminal or gives a secret away."""

from hypothesis import assume, example, given
from hypothesis import strategies as st

from codegenie.eval.sanitising import HARMLESS_VARIABLES, REDACTED, Redactor, one_line, printable
from tests.laws.near_misses import examples

anything = st.text() | st.text(st.sampled_from("ab \t\n\r\x1b\x9b\u202e\u2028\u200b\ud800\ufffd…é"))
# Few letters, so that secrets overlap each other and themselves, and white space of every kind.
secrets = st.text(st.sampled_from("abc \n\t"), min_size=1, max_size=16)
environments = st.dictionaries(st.sampled_from(["TOKEN", "KEY", "PASSWORD", "PEM"]), secrets, max_size=4)


def folded(text: str) -> str:
    return " ".join(text.split())


def known(environment: dict[str, str]) -> set[str]:
    """Return what has to be hidden: every value of 8 characters and more, in one line."""
    return {folded(value) for value in environment.values() if len(value.strip()) >= 8}


@st.composite
def leaks(draw: st.DrawFn) -> tuple[dict[str, str], str]:
    """Draw an environment and a text that quotes its values, whole and in pieces."""
    environment = draw(environments)
    values = [*environment.values(), *map(folded, environment.values()), "a"]
    pieces = st.sampled_from(values) | st.sampled_from(values).map(lambda value: value[1:]) | anything
    return environment, "".join(draw(st.lists(pieces, max_size=6)))


@examples(100)
@given(anything)
def test_printable_text_is_printable_as_long_as_before_and_left_alone_the_second_time(text: str) -> None:
    clean = printable(text)
    assert clean.isprintable()
    assert len(clean) == len(text)
    assert printable(clean) == clean
    assert all(new in {old, "\ufffd"} for old, new in zip(text, clean, strict=True))


@examples(100)
@given(anything, st.integers(1, 30))
def test_one_line_is_one_printable_line_within_its_limit(text: str, limit: int) -> None:
    line = one_line(text, limit)
    assert line.isprintable()
    assert len(line) <= limit
    assert one_line(line, limit) == line
    assert line == printable(folded(text)) or (len(line) == limit and line.endswith("…"))


@examples(200)
@given(leaks())
@example(({"TOKEN": "aaaa bbbb"}, "aaaa\nbbbb"))
@example(({"TOKEN": "aaaa  bbbb"}, "aaaa bbbb"))
@example(({"A": "abcabcabcabc", "B": "cabcaaaa"}, "abcabcabcabcaaaa"))
def test_a_detail_holds_no_secret(leak: tuple[dict[str, str], str]) -> None:
    environment, text = leak
    detail = Redactor(environment).detail(text)
    assert detail.isprintable()
    assert len(detail) <= 200
    assert not [secret for secret in known(environment) if secret in detail]


@examples(200)
@given(leaks())
def test_cleaning_leaves_no_secret_however_its_white_space_is_folded_later(
    leak: tuple[dict[str, str], str],
) -> None:
    environment, text = leak
    redactor = Redactor(environment)
    clean = redactor.clean(text)
    assert not [secret for secret in known(environment) if secret in clean or secret in folded(clean)]
    assert redactor.clean(clean) == clean


@examples(200)
@given(leaks(), st.integers(0, 40))
def test_a_tail_holds_no_end_of_a_secret_that_was_cut_in_two(
    leak: tuple[dict[str, str], str], cut: int
) -> None:
    environment, text = leak
    hidden = known(environment)
    assume(hidden)
    whole = max(environment.values(), key=len) + text
    assume(max(map(len, environment.values())) >= 8)
    tail = Redactor(environment).clean_tail(whole[cut:])
    assert not [secret for secret in hidden if secret in tail]
    # What is left of the first value can only be at the beginning, and the beginning is gone.
    assert len(tail.replace(REDACTED, "")) <= max(
        0, len(whole) - cut - max(map(len, map(str.strip, environment.values())))
    )


@examples(100)
@given(st.text(min_size=8), st.sampled_from(sorted(HARMLESS_VARIABLES)), anything)
def test_harmless_variables_and_short_values_change_nothing(value: str, name: str, text: str) -> None:
    redactor = Redactor({name: value, "SHORT": value.strip()[:7]})
    assert redactor.clean(text + value) == text + value
    assert redactor.clean_tail(text + value) == text + value
