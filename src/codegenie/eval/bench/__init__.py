"""What a bench is, and how it is read from disk."""
