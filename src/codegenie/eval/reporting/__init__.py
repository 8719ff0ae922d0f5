"""Turns records into text for people. These functions return lines and print nothing."""
