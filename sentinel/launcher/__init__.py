"""Starts a training, watches its processes, says where they stand, starts them again; stdlib only."""
