"""The policy of a team, and the verdict on a run. The gate only advises (ADR-0012)."""
