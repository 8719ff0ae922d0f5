"""Confidence bounds from plain numbers, and the arithmetic that they need."""
