"""The nouns and their state tables; pure."""
