"""codegenie.eval: from a bench and a system under test to evidence.

The public names are loaded when they are first used: `codegenie --help` and the child process of a SUT must
not pay for importing pydantic. No module inside the package imports from here.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from codegenie.eval.bench.loading import load_task_class
    from codegenie.eval.errors import EvalError
    from codegenie.eval.models import BenchCase, BenchRunReport, BenchScore, FailureMode, RunOptions, RunPlan
    from codegenie.eval.ports import SutCase, SutResult
    from codegenie.eval.registry import TaskClassRegistry, default_registry, register_task_class
    from codegenie.eval.runner import Runner

__all__ = [
    "BenchCase",
    "BenchRunReport",
    "BenchScore",
    "EvalError",
    "FailureMode",
    "RunOptions",
    "RunPlan",
    "Runner",
    "SutCase",
    "SutResult",
    "TaskClassRegistry",
    "default_registry",
    "load_task_class",
    "register_task_class",
]

_HOMES = {
    "errors": {"EvalError"},
    "bench.loading": {"load_task_class"},
    "models": {"BenchCase", "BenchRunReport", "BenchScore", "FailureMode", "RunOptions", "RunPlan"},
    "ports": {"SutCase", "SutResult"},
    "registry": {"TaskClassRegistry", "default_registry", "register_task_class"},
    "runner": {"Runner"},
}


def __getattr__(name: str) -> Any:  # noqa: ANN401 - any public name
    for module, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
