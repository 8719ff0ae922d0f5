"""The base of every record: frozen, closed, strict and finite."""

import operator
from typing import Any, NoReturn, Self

from pydantic import BaseModel, ConfigDict


class FrozenMap(dict[str, Any]):
    """A dictionary that cannot be changed: pydantic's `frozen` does not freeze the values of a record."""

    __slots__ = ()

    def _refuse(self, *_args: object, **_kwargs: object) -> NoReturn:
        raise TypeError("records do not change; make a new one")

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __reduce__(self) -> tuple[type[Self], tuple[dict[str, Any]]]:
        """Copy and pickle through the constructor, because setting single items is refused."""
        return type(self), (dict(self),)


# The sets of given fields, shared by equal records: a set of its own takes half of a record's memory.
_GIVEN_FIELDS: dict[frozenset[str], set[str]] = {}


is_nothing = operator.not_
"""Says whether to leave out a field that is missing in earlier versions: their records must verify."""


class Record(BaseModel):
    """Base of every record: immutable, no unknown keys, no coercion, no NaN."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        allow_inf_nan=False,
        serialize_by_alias=True,
        validate_by_name=True,
        validate_by_alias=True,
    )

    def model_post_init(self, _context: Any, /) -> None:  # noqa: ANN401 - pydantic's signature
        """Share the set of given fields. This is safe because records do not change."""
        given = self.__pydantic_fields_set__
        object.__setattr__(self, "__pydantic_fields_set__", _GIVEN_FIELDS.setdefault(frozenset(given), given))
