"""Numbers as people write them."""

_MINUTE_MS = 60_000
_HOUR_MS = 60 * _MINUTE_MS


def counted(count: int, what: str, plural: str = "s") -> str:
    """Return `1 unit`, `2 units`. `plural` is the ending of the word for every number other than one."""
    return f"{count} {what}{'' if count == 1 else plural}"


def duration(milliseconds: int) -> str:
    """Return `12 ms`, `3.4 s`, `2:05 min` or `1:02:05 h`, rounded down."""
    if milliseconds < 1_000:  # noqa: PLR2004 - a second
        return f"{milliseconds} ms"
    if milliseconds < _MINUTE_MS:
        return f"{milliseconds // 100 / 10} s"
    seconds = milliseconds // 1_000
    minutes = f"{seconds // 60 % 60}:{seconds % 60:02}"
    if milliseconds < _HOUR_MS:
        return f"{minutes} min"
    return f"{seconds // 3_600}:{minutes.zfill(5)} h"


def short_count(count: int) -> str:
    """Return `900`, `12.3k` or `4.5M`, rounded down."""
    for size, letter in ((1_000_000, "M"), (1_000, "k")):
        if count >= size:
            return f"{count * 10 // size / 10}{letter}"
    return str(count)
