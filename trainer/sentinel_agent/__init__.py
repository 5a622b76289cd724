"""What a user installs: the agent in the training process."""
