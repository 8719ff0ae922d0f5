"""The fence: a static check of benches before they are run. It reads files and never imports or runs them.

`inspect_paths` is the entry point; `codegenie eval fence` prints what it returns.
"""

from codegenie.eval.fence.findings import Finding
from codegenie.eval.fence.fixing import fix_classes
from codegenie.eval.fence.linting import ClassReport, FenceReport, inspect_paths
from codegenie.eval.fence.rules import RULES, Rule

__all__ = ["RULES", "ClassReport", "FenceReport", "Finding", "Rule", "fix_classes", "inspect_paths"]
