"""Grafana's dashboards, written in Python: `make dashboards` makes the JSON beside them anew."""
