"""The reasons against a promotion: a code for programs, a text for people, and the numbers that decided."""

import math
from typing import Annotated

from pydantic import AfterValidator, Field

from codegenie.eval.models import FrozenMap, Record


class Reason(Record):
    """Why a verdict is not `sufficient`. It becomes a sentence only when it is shown."""

    code: str
    text: str
    numbers: Annotated[dict[str, int | float], AfterValidator(FrozenMap)] = Field(default_factory=FrozenMap)

    def __str__(self) -> str:
        """Return the sentence that is shown."""
        return f"{self.code}: {self.text}"


def reason(code: str, text: str, **numbers: float) -> Reason:
    """Make a reason. A number that is not finite is left out: the gate never raises on evidence."""
    finite = {name: number for name, number in numbers.items() if math.isfinite(number)}
    return Reason(code=code, text=text, numbers=finite)
