"""Decisions to people; executors too: one file a channel."""
