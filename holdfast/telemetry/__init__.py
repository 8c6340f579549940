"""Traces and the metrics endpoint: what of them is on, and the parts that do it. Off unless somebody asks for it."""
