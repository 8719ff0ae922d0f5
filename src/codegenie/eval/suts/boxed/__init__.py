"""Agents that are programs: each case in a box of its own, and what the agent changed as its output."""
