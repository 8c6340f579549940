"""Garbage collection of the store: what refers to its objects, and moving to the trash what nothing refers to."""
