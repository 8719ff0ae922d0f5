"""Values of a program as plain data: what is refused, what is sorted, and when two of them are the same."""

from collections.abc import Callable

import pytest

from codegenie.eval.bench.codegenie_rubric import returned, same_value, tagged
from codegenie.eval.errors import DecodingRefused
from codegenie.eval.limits import LIMITS
from codegenie.eval.tagged_values import checked_value

PLAIN: tuple[object, ...] = (
    *(None, True, False, "", "s", 0, -5, 10**300, 0.0, -0.0, 1.5, float("inf"), b"", b"\x00\xff"),
    *([], [1, [2]], (), (1, "a"), set(), {1, 2}, {}, {"k": 1, 2: [3]}),
)


@pytest.mark.parametrize("value", PLAIN, ids=repr)
def test_a_plain_value_has_one_spelling_that_passes_the_check(value: object) -> None:
    spelled = tagged(value)

    assert same_value(checked_value(spelled), spelled)
    assert checked_value(checked_value(spelled)) == checked_value(spelled)
    assert returned({"value": checked_value(spelled)}, value)


@pytest.mark.parametrize(
    "value",
    [
        *(
            5,
            1.5,
            [],
            {},
            {"int": "5", "float": "1"},
            {"int": 5},
            {"int": "05"},
            {"int": "-0"},
            {"int": "+1"},
        ),
        *({"int": "1" * 2_000}, {"int": "\u0665"}, {"float": "1.5"}, {"float": "0x1.8p+1"}, {"float": "NaN"}),
        *(
            {"float": "0x1p+99999"},
            {"bytes": "0"},
            {"bytes": "FF"},
            {"list": {}},
            {"list": "a"},
            {"list": [5]},
        ),
        *(
            {"dict": [["k"]]},
            {"dict": {"k": None}},
            {"dict": [["k", None], ["k", None]]},
            {"set": ["a", "a"]},
        ),
        *({"object": ""}, {"object": "a b"}, {"object": 5}, {"complex": "1j"}, {"frozenset": []}),
    ],
    ids=repr,
)
def test_what_is_not_in_its_one_form_is_refused(value: object) -> None:
    with pytest.raises(DecodingRefused):
        checked_value(value)


def test_a_value_is_refused_beyond_its_depth_and_not_at_it() -> None:
    value: object = None
    for _ in range(LIMITS.tagged_levels):
        value = {"list": [value]}

    assert checked_value(value) == value
    with pytest.raises(DecodingRefused, match="levels"):
        checked_value({"list": [value]})


def test_an_object_stands_for_itself_in_a_reply_and_cannot_be_an_argument() -> None:
    assert checked_value({"object": "calc.Any"}) == {"object": "calc.Any"}
    with pytest.raises(DecodingRefused, match="argument"):
        checked_value({"list": [{"object": "calc.Any"}]}, objects=False)


def test_members_of_a_set_are_sorted_and_two_objects_are_two_members() -> None:
    assert checked_value({"set": ["b", "a"]}) == {"set": ["a", "b"]}
    two = {"set": [{"object": "a.B"}, {"object": "a.B"}]}
    assert checked_value(two) == two


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, True),
        (1, 1.0),
        (True, 1.0),
        ("1", 1),
        ([1], (1,)),
        ({1}, [1]),
        (0.0, -0.0),
        (b"a", "a"),
        ({}, set()),
    ],
)
def test_values_of_two_types_are_two_values(one: object, other: object) -> None:
    assert not same_value(tagged(one), tagged(other))
    assert not returned({"value": tagged(one)}, other)


def test_order_matters_in_a_list_and_not_in_a_dict_or_a_set() -> None:
    assert same_value(tagged({"a": 1, "b": 2}), tagged({"b": 2, "a": 1}))
    assert same_value({"set": ["a", "b"]}, {"set": ["b", "a"]})
    assert not same_value(tagged([1, 2]), tagged([2, 1]))
    assert not same_value(tagged({"a": "b"}), tagged({"b": "a"}))


@pytest.mark.parametrize(
    "shape", [lambda one: one, lambda one: {"list": [one]}, lambda one: {"dict": [["k", one]]}]
)
def test_an_object_equals_nothing_not_even_itself(shape: Callable[[object], object]) -> None:
    value = shape({"object": "calc.Any"})

    assert not same_value(value, value)


@pytest.mark.parametrize("reply", [None, {}, {"raised": "ValueError"}, {"raised": None}, "value", 5])
def test_an_exception_and_no_answer_are_not_a_value(reply: object) -> None:
    assert not returned(reply, None)


def test_a_value_that_is_not_plain_data_cannot_be_expected() -> None:
    class Other(int):
        pass

    for value in (Other(1), object(), [object()], frozenset()):
        with pytest.raises(TypeError, match="plain data"):
            tagged(value)
