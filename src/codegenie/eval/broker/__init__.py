"""The model broker: it holds the key of a model's provider outside the box and counts what an agent uses."""
