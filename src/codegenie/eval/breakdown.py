"""Which words a breakdown key may not hold (ADR-0008).

A key that reports how sure the judged system is of itself would let that system grade itself. The loader
calls this module when a bench declares keys. Validation calls it again when a rubric emits keys.
"""

import unicodedata

BANNED_WORDS = ("confidence", "llm", "self_reported", "model_says")
# `llm` is compared with its separators only: without them it would match `all_metrics`.
_WITHOUT_SEPARATORS = {word.replace("_", ""): word for word in BANNED_WORDS if word != "llm"}

# Letters of other scripts that a reader takes for the Latin letter (threats BL-09). Compatibility forms
# (fullwidth, ligatures, mathematical, Roman numerals) are left out because Unicode itself folds them.
_LOOK_ALIKES = {
    "a": "\u0430\u03b1\u0251\u237a",
    "c": "\u0441\u03f2\u1d04\u2ca5\U0001043d",
    "d": "\u0501\u217e\u13e7\u146f\ua4d2",
    "e": "\u0435\u04bd\u212e\uab32",
    "f": "\u0192\u03dd\ua799\u1e9d\u0584",
    "h": "\u04bb\u0570",
    "i": "\u0456\u0131\u0269\u03b9\u13a5\ua647\u02db",
    "l": "\u04cf\u04c0\u01c0\u0399\u05c0\u05d5\u05df\u0627\u2110\u2223\u2d4f\ua4f2\u0142\u019a\u026d",
    "m": "\u043c\u028d\u1d0d\u217f\u0271",
    "n": "\u0578\u057c\u0273\u0272\u03b7\u014b\u0274\u043f",
    "o": "\u043e\u03bf\u03c3\u0585\u10ff\u0ed0\u0966\u06f0\u1d0f\u2c9f\u00f8\u0275\u0d20\u101d\U0001042c",
    "p": "\u0440\u03c1\u2ca3\u03f1",
    "r": "\u0433\u1d26\u2c85\uab47\uab48",
    "s": "\u0455\u01bd\u0282\ua731\uabaa\U00010448",
    "t": "\u0442\u03c4\u01ad\u1d1b",
    "y": "\u0443\u0263\u028f\u03b3\u04af\u10e7",
}
_FOLDED = {ord(char): latin for latin, chars in _LOOK_ALIKES.items() for char in chars}


def banned_part(key: str) -> str | None:
    """Return the banned word that `key` contains or looks like, also if separators are put inside it."""
    lowered = key.lower() if key.isascii() else _skeleton(key)
    for word in BANNED_WORDS:
        if word in lowered:
            return word
    letters = "".join(char for char in lowered if char.isalnum())
    return next((word for bare, word in _WITHOUT_SEPARATORS.items() if bare in letters), None)


def _skeleton(key: str) -> str:
    """Return what a reader sees: look-alikes become Latin letters, and invisible characters are removed."""
    folded = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", key).casefold()).translate(_FOLDED)
    return "".join(char for char in folded if unicodedata.category(char) not in {"Mn", "Me", "Cf", "Cc"})
