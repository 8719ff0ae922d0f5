"""`--sut SPEC` to a system under test."""

from dataclasses import dataclass

from codegenie.eval.errors import SutSpecInvalid
from codegenie.eval.limits import LIMITS
from codegenie.eval.models import RunPlan
from codegenie.eval.ports import SutRunner
from codegenie.eval.suts.own import NullSut, OracleSut
from codegenie.eval.suts.python import PythonSut


@dataclass(frozen=True, slots=True)
class SutRequest:
    """What the command line says of the system under test."""

    spec: str
    version: str | None = None
    pass_names: tuple[str, ...] = ()


def open_sut(request: SutRequest, plan: RunPlan) -> SutRunner:
    """Return the system under test that was asked for, or refuse with what there is."""
    for text in (request.spec + "".join(request.pass_names), request.version or ""):
        if len(text) > LIMITS.text_characters // 2:
            raise SutSpecInvalid(
                f"{text[:40]!r}… has {len(text)} characters, and a record of the log takes"
                f" {LIMITS.text_characters // 2}"
            )
    kind, _, rest = request.spec.partition(":")
    if kind == "python" and rest:
        return PythonSut(rest, version=request.version, pass_names=request.pass_names)
    if request.spec not in {"null", "oracle"}:
        raise SutSpecInvalid(
            f"{request.spec!r} is not a system under test", hint="use null, oracle or python:module:attr"
        )
    if request.pass_names or request.version:
        raise SutSpecInvalid(
            f"{request.spec!r} takes neither --sut-env nor --sut-version: it is the harness's own"
        )
    if request.spec == "null":
        return NullSut()
    return OracleSut(plan.task_class.directory / "cases", {case.case_id: case.digest for case in plan.cases})
