"""Bounds from plain numbers, and the arithmetic under them."""
