"""Which words a breakdown key may not hold (ADR-0008).

A key that reports how sure the judged system is of itself would let it grade itself. The loader asks
here when a bench declares keys, and validation asks again, on its own, when a rubric emits them.
"""

BANNED_WORDS = ("confidence", "llm", "self_reported", "model_says")
# `llm` counts only as written: without separators it would catch `all_metrics`.
_WITHOUT_SEPARATORS = {word.replace("_", ""): word for word in BANNED_WORDS if word != "llm"}


def banned_part(key: str) -> str | None:
    """Return the banned word that `key` holds, also when separators are spread over it."""
    lowered = key.lower()
    for word in BANNED_WORDS:
        if word in lowered:
            return word
    letters = "".join(char for char in lowered if char.isalnum())
    return next((word for bare, word in _WITHOUT_SEPARATORS.items() if bare in letters), None)
