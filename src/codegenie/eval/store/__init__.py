"""The outcome store: outputs and scores of earlier runs, and when they may be used again."""
