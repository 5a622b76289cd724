"""The pure fold: log entries in, findings, incidents, decisions and actions out; live and replay run this same code."""
