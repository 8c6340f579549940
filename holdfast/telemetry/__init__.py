"""Traces and the metrics endpoint: their settings, and the parts that serve them. Off unless asked for."""
