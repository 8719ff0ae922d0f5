"""The registration decorator, for trusted code in this process.

A bench on disk is never imported: the loader reads the same decorator from the syntax tree and does not
touch any registry. In this module it works as an ordinary decorator.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from types import MappingProxyType
from typing import TypeVar

from codegenie.eval.errors import TaskClassAlreadyRegistered, TaskClassNotFound

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Registration:
    """The arguments of one decorator, as plain data."""

    name: str
    bench_path: str
    min_cases_for_promotion: Mapping[str, int]


class TaskClassRegistry:
    """The names that were registered in this process. Each name can be registered once."""

    def __init__(self) -> None:
        self._registrations: dict[str, Registration] = {}

    def register(self, registration: Registration) -> None:
        """Register a name. Raises TaskClassAlreadyRegistered if it is taken."""
        if registration.name in self._registrations:
            raise TaskClassAlreadyRegistered(
                f"task class {registration.name!r} is registered already",
                hint="give one of the two another name",
            )
        self._registrations[registration.name] = registration

    def get(self, name: str) -> Registration:
        """Return what was registered under `name`. Raises TaskClassNotFound if there is nothing."""
        try:
            return self._registrations[name]
        except KeyError:
            raise TaskClassNotFound(f"no task class {name!r} is registered") from None

    def names(self) -> tuple[str, ...]:
        """Return the registered names, sorted."""
        return tuple(sorted(self._registrations))


default_registry = TaskClassRegistry()


def register_task_class(
    name: str,
    *,
    bench_path: str | PurePath = ".",
    min_cases_for_promotion: Mapping[str, int] | None = None,
    registry: TaskClassRegistry | None = None,
) -> Callable[[T], T]:
    """Register a task class and return the decorated object unchanged."""
    registration = Registration(name, str(bench_path), MappingProxyType(dict(min_cases_for_promotion or {})))

    def decorate(decorated: T) -> T:
        (registry or default_registry).register(registration)
        return decorated

    return decorate
