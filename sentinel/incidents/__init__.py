"""Findings to incidents; pure."""
