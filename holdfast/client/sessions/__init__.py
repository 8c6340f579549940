"""Requests to sessions, their events, and the checks before both."""
