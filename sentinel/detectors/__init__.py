"""Observation to findings; pure; one detector a file."""
