"""Speed and memory of the harness itself, against baselines, as ratios: `python -m benchmarks`."""
