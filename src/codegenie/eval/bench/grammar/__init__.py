"""What the files of a bench may say: its two Python files, its two tables and the heads of its cases.

`read_…` returns what a file says or raises the first problem; `inspect_…` returns both, with every problem.
"""

from codegenie.eval.bench.grammar.calls_file import Call, read_calls
from codegenie.eval.bench.grammar.case_file import CaseHead, inspect_case
from codegenie.eval.bench.grammar.problems import Problem, Reading
from codegenie.eval.bench.grammar.python_files import (
    inspect_breakdown_keys,
    inspect_registration,
    read_breakdown_keys,
    read_registration,
)
from codegenie.eval.bench.grammar.syntax_tree import (
    COMPILED_CODE,
    check_reviewable,
    foreign_encoding,
    pycache_hint,
)
from codegenie.eval.bench.grammar.yaml_files import (
    digest_lines,
    inspect_digests,
    inspect_taxonomy,
    read_digests,
    read_taxonomy,
)

__all__ = [
    "COMPILED_CODE",
    "Call",
    "CaseHead",
    "Problem",
    "Reading",
    "check_reviewable",
    "digest_lines",
    "foreign_encoding",
    "inspect_breakdown_keys",
    "inspect_case",
    "inspect_digests",
    "inspect_registration",
    "inspect_taxonomy",
    "pycache_hint",
    "read_breakdown_keys",
    "read_calls",
    "read_digests",
    "read_registration",
    "read_taxonomy",
]
