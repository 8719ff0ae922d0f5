"""Registration of the bench `dependency-pin`."""

from pathlib import Path

from codegenie.eval import register_task_class


@register_task_class(
    "dependency-pin",
    bench_path=Path(__file__).parent,
    min_cases_for_promotion={"bronze": 8},
)
class DependencyPin:
    """Move one pinned dependency off an affected release, and touch nothing else."""
