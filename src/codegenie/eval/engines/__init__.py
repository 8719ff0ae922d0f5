"""How the trials of a run are spread over workers."""
