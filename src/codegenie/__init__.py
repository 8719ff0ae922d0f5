"""Tools around coding agents; the evaluation harness is `codegenie.eval`."""

__version__ = "0.1.0"
