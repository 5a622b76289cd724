"""The pure fold from log entries to findings, incidents, decisions and actions; live and replay run this code."""
