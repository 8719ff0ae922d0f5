"""Which words a breakdown key may not hold (ADR-0008).

A key that reports how sure the judged system is of itself would let it grade itself. The loader asks
here when a bench declares keys, and validation asks again, on its own, when a rubric emits them.
"""

BANNED_AS_WRITTEN = ("confidence", "llm", "self_reported", "model_says")
# `llm` is left out: without separators it would catch `all_metrics`.
BANNED_WITHOUT_SEPARATORS = ("confidence", "selfreported", "modelsays")


def banned_part(key: str) -> str | None:
    """Return the banned word that `key` holds, also when separators are spread over it."""
    lowered = key.lower()
    for word in BANNED_AS_WRITTEN:
        if word in lowered:
            return word
    skeleton = "".join(char for char in lowered if char.isalnum())
    return next((word for word in BANNED_WITHOUT_SEPARATORS if word in skeleton), None)
