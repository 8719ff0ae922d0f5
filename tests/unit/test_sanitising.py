"""What is shown of text that others wrote."""

import pytest

from codegenie.eval.limits import LIMITS
from codegenie.eval.sanitising import REDACTED, Redactor, one_line, printable

SECRET = "sk-live-0123456789"


@pytest.mark.parametrize(
    "steering",
    [
        "\x1b[2J",
        "\x9b2J",
        "\x1b]52;c;AAAA\x07",
        "\r",
        "\x08",
        "\u202e",
        "\u2066",
        "\u200b",
        "\ufeff",
        "\u2028",
        "\xad",
        "\x7f",
    ],
    ids=ascii,
)
def test_nothing_that_steers_a_terminal_or_a_reader_is_left(steering: str) -> None:
    for shown in (
        printable(f"a{steering}b"),
        one_line(f"a{steering}b"),
        Redactor({}).detail(f"a{steering}b"),
    ):
        assert shown.isprintable()
        assert not set(steering) - set("[2J]5;cA") & set(shown)


def test_ordinary_text_is_left_as_it_is() -> None:
    text = "né en 1984, 日本 — “ok” 😀"
    assert printable(text) is text
    assert one_line(text) == text


def test_a_line_is_folded_and_cut_with_a_sign() -> None:
    assert one_line("a\n\tb  c\r\n") == "a b c"
    assert one_line("x" * 200) == "x" * 200
    assert one_line("x" * 201) == "x" * 199 + "…"


@pytest.mark.parametrize(
    "text",
    [
        SECRET,
        f"Authorization: Bearer {SECRET}!",
        f"{SECRET}{SECRET}",
        f"{'x' * 185}{SECRET}",
        f"first line\n{SECRET[:9]}{SECRET[9:]}\nlast",
    ],
)
def test_a_secret_of_the_environment_is_redacted_also_where_a_line_is_cut(text: str) -> None:
    redactor = Redactor({"API_KEY": SECRET})
    for shown in (redactor.clean(text), redactor.detail(text)):
        assert SECRET not in shown
        assert not any(SECRET[:length] in shown for length in range(8, len(SECRET)))
    assert REDACTED in redactor.clean(text)


def test_of_two_secrets_that_overlap_nothing_is_left() -> None:
    redactor = Redactor({"A": "abcdefgh", "B": "efghijkl", "C": "abcdefgh-longer"})
    assert redactor.clean("<abcdefghijkl>") == f"<{REDACTED}>"
    assert redactor.clean("<abcdefgh-longer>") == f"<{REDACTED}>"


def test_a_secret_of_several_lines_is_redacted_whole_folded_and_line_by_line() -> None:
    key = "-----BEGIN KEY-----\nMIIEvQIBADANBg\n-----END KEY-----\n"
    redactor = Redactor({"PEM": key})
    assert redactor.clean(key).strip() == REDACTED
    assert "MIIEvQ" not in redactor.detail(f"it was {key}")
    assert redactor.clean("one line: MIIEvQIBADANBg") == f"one line: {REDACTED}"
    assert redactor.detail("-----BEGIN\tKEY-----   MIIEvQIBADANBg -----END KEY-----") == REDACTED


def test_a_secret_of_bytes_that_are_no_text_is_redacted_as_it_looks_once_decoded() -> None:
    value = b"key-\xff\xfe-0123".decode("utf-8", "surrogateescape")
    shown = b"key-\xff\xfe-0123".decode("utf-8", "replace")
    assert Redactor({"KEY": value}).clean(f"<{shown}>") == f"<{REDACTED}>"


def test_short_values_and_harmless_variables_stay_readable() -> None:
    redactor = Redactor(
        {"DEBUG": "1", "PIN": "1234567", "PATH": "/usr/bin:/bin", "EMPTY": "", "BLANK": " " * 20}
    )
    text = "1 1234567 /usr/bin:/bin and           space"
    assert redactor.clean(text) == text
    assert redactor.clean_tail(text) == text


def test_the_mark_itself_is_not_redacted_again() -> None:
    redactor = Redactor({"WORD": "redacted", "KEY": SECRET})
    assert redactor.clean(redactor.clean(SECRET)) == REDACTED


def test_a_tail_loses_as_much_as_half_a_secret_could_take() -> None:
    redactor = Redactor({"KEY": SECRET})
    tail = SECRET[3:] + " and then an error"
    assert redactor.clean_tail(tail) == tail[len(SECRET) :]
    # A whole secret across the new edge goes too, and does not leave its end behind.
    crossing = "x" * 10 + SECRET + " end"
    assert redactor.clean_tail(crossing) == " end"


def test_a_large_log_of_nothing_but_secrets_is_redacted() -> None:
    redactor = Redactor({f"KEY{n}": f"{n:04}" * 4 for n in range(100)})
    log = "0001" * (LIMITS.sut_log_bytes // 4)
    assert not set(redactor.clean(log)) - set(REDACTED)


@pytest.mark.parametrize("blank", ["\u3164", "\u2800", "\u115f", "\uffa0", "\ufe0f", "\U000e0100"])
def test_a_letter_that_shows_nothing_is_replaced(blank: str) -> None:
    assert printable(f"a{blank * 3}b") == "a\ufffd\ufffd\ufffdb"


def test_marks_that_a_language_needs_stay_and_a_pile_of_them_does_not() -> None:
    assert printable("e\u0302\u0301 n\u0303") == "e\u0302\u0301 n\u0303"
    assert printable("e" + "\u0301" * 60) == "e" + "\u0301" * 3 + "\ufffd" * 57
