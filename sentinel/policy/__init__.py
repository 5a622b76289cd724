"""Incident to decision; pure."""
