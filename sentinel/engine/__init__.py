"""The loop: the log's single writer, the dispatcher of actions, replay."""
