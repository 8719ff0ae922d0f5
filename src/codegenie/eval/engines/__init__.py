"""Engines, which spread the trials of a run over workers."""
