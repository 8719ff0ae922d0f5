"""Boxes: where agents, and the code that they produced, run confined."""
