"""A node's facts, read beside the training; one source a file."""
