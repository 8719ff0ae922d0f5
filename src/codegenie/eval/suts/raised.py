"""An exception of a system under test as three short texts: its type, its message, and where it was raised.

The texts are made in the process of the exception, from the exception itself: the last line of a log may be
any text. Almost every attribute of an exception can run foreign code, so each text is made under a guard. A
SUT child imports this module on every call, so it imports only the standard library.
"""

import json
import os
from collections.abc import Callable
from typing import NamedTuple, TypeVar, cast

T = TypeVar("T")

MESSAGE_CHARACTERS = 2_000
"""A longer message is cut to this length; a tenth of this is shown."""

RAISED_BYTES = 64 * 1024
"""More than the three texts need as JSON."""

_NAME_CHARACTERS = 100
_PLACE_CHARACTERS = 400
_GROUPS = 32
_INSTALLED = {"site-packages", "dist-packages"}
_LIBRARY = os.path.dirname(os.__file__)
_HARNESS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


class Raised(NamedTuple):
    """The description of an exception. Its texts may still hold control characters and secrets."""

    type: str
    message: str
    place: str
    returned_nothing: bool = False

    def encoded(self) -> bytes:
        """Write it as JSON, for the descriptor on which the harness reads it."""
        # The reader refuses a lone surrogate (half of a character).
        texts = {name: value for name, value in self._asdict().items() if isinstance(value, str)}
        whole = {name: text.encode("utf-8", "replace").decode() for name, text in texts.items()}
        return json.dumps({**self._asdict(), **whole}).encode()


class OwnCode(NamedTuple):
    """Which files are the agent's own: those of its package, and those of the directory it was started in."""

    directory: str
    file: str

    def place(self, path: str, line: int) -> str | None:
        """Return `file:line` if the file is the agent's own, and None if it belongs to a library."""
        if not os.path.isabs(path) or path.startswith((_LIBRARY + os.sep, _HARNESS + os.sep)):
            return None
        package = os.path.dirname(self.file)
        for root, shown_from in ((self.directory, self.directory), (package, os.path.dirname(package))):
            inner = _below(path, root)
            if inner and not _INSTALLED & {*inner.split(os.sep), os.path.basename(root)}:
                return f"{_below(path, shown_from)}:{line}"
        return f"{os.path.basename(path)}:{line}" if path == self.file else None


def _below(path: str, root: str) -> str | None:
    prefix = root.rstrip(os.sep) + os.sep
    return path[len(prefix) :] if path.startswith(prefix) else None


def describe(error: BaseException, own: OwnCode, *, returned_nothing: bool = False) -> Raised:
    """Describe an exception as far as possible; never raises."""
    leaf = guarded(lambda: _first_of_group(error), error)
    message = guarded(lambda: _message(error), "(its message cannot be shown)")
    if leaf is not error:
        inner = guarded(lambda: _message(leaf), "(its message cannot be shown)")
        message = f"{message}: {_name(leaf)}: {inner}" if inner else f"{message}: {_name(leaf)}"
    place = guarded(lambda: _place(leaf, own) or _place(error, own), "")
    return Raised(
        _name(error)[:_NAME_CHARACTERS],
        message[:MESSAGE_CHARACTERS],
        place[-_PLACE_CHARACTERS:],
        returned_nothing,
    )


def attempted(work: Callable[[], T]) -> tuple[T | None, BaseException | None]:
    """Call `work`, which runs foreign code, and return what it raises as a value."""
    try:
        return work(), None
    except BaseException as error:  # noqa: BLE001 - SystemExit of foreign code ends a case, not us
        return None, error


def guarded(work: Callable[[], T], otherwise: T) -> T:
    """Call `work`, which may run foreign code, and return `otherwise` if it raises."""
    result, error = attempted(work)
    return cast("T", result) if error is None else otherwise


def _name(error: BaseException) -> str:
    # Read by the slot of `type` itself: a metaclass can return any value.
    name: str = type.__dict__["__name__"].__get__(type(error))
    return name


def _message(error: BaseException) -> str:
    known = isinstance(error, SyntaxError) and isinstance(error.msg, str)
    # Split by the method of `str` itself, which returns plain strings: the text may be of a subclass.
    return " ".join(str.split(error.msg if known else str(error)))  # type: ignore[attr-defined]


def _first_of_group(error: BaseException) -> BaseException:
    for _ in range(_GROUPS):
        if not isinstance(error, BaseExceptionGroup):
            break
        error = error.exceptions[0]
    return error


def _place(error: BaseException, own: OwnCode) -> str:
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        place = own.place(error.filename, error.lineno)
        if place is not None:
            return place
    place = None
    step = error.__traceback__
    while step is not None:
        place = own.place(step.tb_frame.f_code.co_filename, step.tb_lineno) or place
        step = step.tb_next
    return place or ""
