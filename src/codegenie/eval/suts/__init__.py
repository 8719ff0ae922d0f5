"""Systems under test: two of the harness itself, a caller's object, and a module in its own process."""
