"""Where rubrics run: what they may see, how they are started, and which class of isolation that is."""
