"""Runnable agents; none of this is in the wheel."""
