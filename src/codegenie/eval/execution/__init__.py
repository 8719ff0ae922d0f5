"""Executes the steps of a case: code of an agent, in boxes of its own, before the rubric judges."""
