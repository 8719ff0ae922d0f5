"""A number and what it counts, as people write it."""


def counted(count: int, what: str, plural: str = "s") -> str:
    """Return `1 unit`, `2 units`; `plural` is what the word gets for any other number than one."""
    return f"{count} {what}{'' if count == 1 else plural}"
