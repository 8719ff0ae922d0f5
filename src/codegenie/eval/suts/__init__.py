"""Systems under test: the harness's own, a caller's object, and a module in a process of its own."""
