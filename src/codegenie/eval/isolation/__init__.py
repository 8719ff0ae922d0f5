"""The isolation of rubrics: what they may see, how they are started, and the proof of the class."""
