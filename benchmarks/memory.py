"""Memory: the peak of the harness process itself through whole runs of growing size."""

from collections.abc import Sequence
from pathlib import Path

from benchmarks.generated_bench import IN_STEPS, PASS_OR_FAIL, generate_bench
from benchmarks.results import Row, Section
from benchmarks.rounds import NotMeasurable, Spread, program, run_child

TARGET_MB = 70.0
TARGET_GROWTH_KB = 4.0


def measure_memory(directory: Path, sizes: Sequence[int]) -> Section:
    """Run benches of all sizes once each; other work on the machine does not change the memory."""
    peaks = {size: _peak_mb(directory / f"memory-{size}", size, PASS_OR_FAIL) for size in sizes}
    smallest, largest = min(sizes), max(sizes)
    growth = (peaks[largest] - peaks[smallest]) * 1000 / (largest - smallest)
    partial = _peak_mb(directory / "memory-partial", largest, IN_STEPS)
    rows = [Row(f"{size:,} cases", _once(peak), "MB", TARGET_MB) for size, peak in peaks.items()]
    rows.append(Row(f"growth from {smallest:,} to {largest:,}", _once(growth), "KB a case", TARGET_GROWTH_KB))
    rows.append(
        Row(f"{largest:,} cases with partial scores (imports numpy)", _once(partial), "MB", TARGET_MB)
    )
    how = (
        "VmHWM of the harness process, its children not counted, at the end of a run with a rubric of "
        "three lines; pass or fail, unless it says otherwise. MB are 10⁶ bytes."
    )
    return Section("Peak memory", how, rows)


def _peak_mb(directory: Path, cases: int, rubric: str) -> float:
    bench = generate_bench(directory, cases, rubric)
    printed = run_child(program("probe.py", "run", bench, 2), directory).printed
    if printed["cases"] != cases:
        raise NotMeasurable(f"{printed['cases']} of {cases} cases were scored")
    return float(printed["peak_kib"]) * 1024 / 1e6


def _once(figure: float) -> Spread:
    return Spread(figure, figure, figure)
