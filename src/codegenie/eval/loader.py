"""The documented import path of the loader. The code is in `bench.loading`."""

from codegenie.eval.bench.loading import BenchRoot, load_cases, load_task_class, read_case_tree

__all__ = ["BenchRoot", "load_cases", "load_task_class", "read_case_tree"]
