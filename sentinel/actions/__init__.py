"""Decisions to the world, one executor a file."""
