"""Attacks that the harness claims to defeat, one driver per scenario."""
