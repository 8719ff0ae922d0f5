"""Whether a case has what its steps need: every file that they name, and calls that can be made."""

from collections.abc import Iterable, Iterator, Mapping

from codegenie.eval.bench.copies import read_case_parts
from codegenie.eval.bench.grammar import read_calls
from codegenie.eval.bench.grammar.problems import Problem
from codegenie.eval.errors import BenchCaseLoadError, DecodingRefused
from codegenie.eval.execute_steps import EXECUTE, PythonCalls, step_files
from codegenie.eval.models import BenchCase, TaskClass

_HINT = "see docs/reference/bench.md for the steps"


def step_problems(case: BenchCase, files: Mapping[str, bytes]) -> Iterator[Problem]:
    """Yield what is wrong with the files below `execute/`, which are given by their paths in the case."""
    for step in case.execute:
        for path in step_files(step):
            if path not in files:
                yield Problem(
                    BenchCaseLoadError,
                    f"step {step.name!r} names {path}, which is missing",
                    "case.toml",
                    hint=_HINT,
                )
        if isinstance(step, PythonCalls) and step.calls in files:
            try:
                read_calls(files[step.calls])
            except DecodingRefused as refusal:
                yield Problem(BenchCaseLoadError, refusal.message, step.calls, refusal.line, _HINT)


def check_step_files(task_class: TaskClass, cases: Iterable[BenchCase]) -> None:
    """Raise BenchCaseLoadError if a step of a case cannot be executed, before any agent is asked."""
    directory = task_class.directory / "cases"
    for case in cases:
        if not case.execute:
            continue
        found = read_case_parts(directory, case.case_id, case.digest, {"execute"})["execute"]
        files = {f"{EXECUTE}{name}": content for name, content in found.items()}
        for problem in step_problems(case, files):
            refusal = problem.refusal()
            refusal.where = f"{directory}/{case.case_id}/{refusal.where}"
            raise refusal
