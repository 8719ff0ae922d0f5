"""The decorator as trusted code uses it."""

from pathlib import PurePath

import pytest

from codegenie.eval.bench.loading import load_task_class
from codegenie.eval.errors import TaskClassAlreadyRegistered, TaskClassNotFound
from codegenie.eval.registry import TaskClassRegistry, default_registry, register_task_class
from tests.support.stub_benches import FIXTURE, NAME


def test_the_decorator_registers_and_returns_what_it_decorates() -> None:
    registry = TaskClassRegistry()

    @register_task_class(
        "a", bench_path=PurePath("here"), min_cases_for_promotion={"gold": 3}, registry=registry
    )
    class Decorated:
        """Something."""

    assert Decorated.__doc__ == "Something."
    assert registry.names() == ("a",)
    assert registry.get("a").bench_path == "here"
    assert registry.get("a").min_cases_for_promotion == {"gold": 3}


def test_a_name_is_taken_once() -> None:
    registry = TaskClassRegistry()
    register_task_class("a", registry=registry)(object())
    with pytest.raises(TaskClassAlreadyRegistered, match="'a' is registered already") as caught:
        register_task_class("a", registry=registry)(object())
    assert caught.value.exit_code == 2
    assert registry.names() == ("a",)


def test_a_name_that_nobody_registered_is_not_found() -> None:
    with pytest.raises(TaskClassNotFound, match="'gone'"):
        TaskClassRegistry().get("gone")


def test_what_was_registered_does_not_change_with_the_callers_dictionary() -> None:
    registry = TaskClassRegistry()
    minimums = {"gold": 3}
    register_task_class("a", min_cases_for_promotion=minimums, registry=registry)(object())
    minimums["gold"] = 0
    assert registry.get("a").min_cases_for_promotion["gold"] == 3
    with pytest.raises(TypeError):
        registry.get("a").min_cases_for_promotion["gold"] = 0  # type: ignore[index]


def test_the_default_registry_is_used_unless_another_is_given() -> None:
    register_task_class("registered-by-a-test")(object())
    assert default_registry.get("registered-by-a-test").name == "registered-by-a-test"


def test_loading_a_bench_leaves_the_registry_alone() -> None:
    before = default_registry.names()
    load_task_class(NAME, bench_root=FIXTURE.parent)
    load_task_class(NAME, bench_root=FIXTURE.parent)
    assert default_registry.names() == before
