"""The parts of a bench, and how they are read from disk."""
