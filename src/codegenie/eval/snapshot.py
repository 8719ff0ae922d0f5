"""The documented import path of private copies. The code is in `bench.copies` and `system.run_directory`."""

from codegenie.eval.bench.copies import CaseSnapshots
from codegenie.eval.system.run_directory import RUN_DIRECTORY_PREFIX, run_directory

__all__ = ["RUN_DIRECTORY_PREFIX", "CaseSnapshots", "run_directory"]
