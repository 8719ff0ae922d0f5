"""A number and the word that it counts, as people write them."""


def counted(count: int, what: str, plural: str = "s") -> str:
    """Return `1 unit`, `2 units`. `plural` is the ending of the word for every number other than one."""
    return f"{count} {what}{'' if count == 1 else plural}"
