"""Which checkpoint is good; pure."""
