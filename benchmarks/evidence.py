"""Evidence: the cost of a warm run, of recording a cold run, and of verifying a large log."""

from pathlib import Path

from benchmarks.generated_bench import generate_bench
from benchmarks.results import Row, Section
from benchmarks.rounds import NotMeasurable, Spread, interleaved, program, run_child

TARGET_WARM = 0.03
TARGET_RECORDING = 0.05
CASES_OF_A_RUN = 50


def measure_evidence(directory: Path, cases: int, runs: int, reference_seconds: float) -> Section:
    """Measure reuse, recording and verification; the first two against the reference and the whole run."""
    warm = _marginal_warm_seconds(directory / "warm", cases)
    bench = generate_bench(directory / "parts", cases // 5)
    parts = run_child(program("probe.py", "parts", bench, 2), directory).printed
    few, many = (_verified(directory / f"log-{count}", count) for count in (runs // 10, runs))
    warm_share = _scaled(warm, 1 / reference_seconds)
    whole_log = f"verify {runs:,} runs of {CASES_OF_A_RUN} cases"
    rows = [
        Row("warm case ÷ one case of the reference", warm_share, "times", TARGET_WARM),
        Row("warm case, at the margin", _scaled(warm, 1e6), "µs"),
        Row("journal, validation and log ÷ cold run", _once(parts["share"]), "times", TARGET_RECORDING),
        Row(f"{whole_log} ÷ reading and hashing it", _ratio(many), "times"),
        Row(whole_log, _once(many["seconds"]), "s"),
        Row(f"peak memory, {runs // 10:,} runs", _once(few["peak_kib"] * 1024 / 1e6), "MB"),
        Row(f"peak memory, {runs:,} runs", _once(many["peak_kib"] * 1024 / 1e6), "MB"),
    ]
    how = (
        f"Warm: everything cached, plan and log included, from {cases // 5:,} to {cases:,} cases. Recording: "
        f"a cold run of {cases // 5:,} cases with the calls timed inside it. Verify: every byte read once, "
        "every hash, score, aggregate and bound recomputed."
    )
    return Section("Evidence", how, rows)


def _marginal_warm_seconds(directory: Path, cases: int) -> Spread:
    """Return what one more cached case costs, from two sizes of warm runs."""
    small, large = (generate_bench(directory / str(size), size) for size in (cases // 5, cases))
    costs = interleaved(
        {
            "small": lambda: run_child(program("probe.py", "warm", small, 2), directory),
            "large": lambda: run_child(program("probe.py", "warm", large, 2), directory),
        },
        4,
    )
    # The first round filled the store.
    pairs = zip(costs["large"][1:], costs["small"][1:], strict=True)
    more = cases - cases // 5
    return Spread.of([(big.printed["seconds"] - one.printed["seconds"]) / more for big, one in pairs])


def _verified(directory: Path, runs: int) -> dict[str, float]:
    bench = generate_bench(directory, CASES_OF_A_RUN)
    run_child(program("probe.py", "log", bench, runs), directory)
    printed = dict(run_child(program("probe.py", "verify", bench), directory).printed)
    if printed["runs"] != runs:
        raise NotMeasurable(f"{printed['runs']} of {runs} runs were verified")
    return printed


def _ratio(printed: dict[str, float]) -> Spread:
    return _once(printed["seconds"] / printed["read_seconds"])


def _once(figure: float) -> Spread:
    return Spread(figure, figure, figure)


def _scaled(spread: Spread, factor: float) -> Spread:
    return Spread(spread.median * factor, spread.low * factor, spread.high * factor)
