"""Sentinel: a daemon beside a training run that finds faults, says why, and rolls back to the last good checkpoint."""
