"""Counts the words of a text."""

from __future__ import annotations


def count(text: str) -> dict[str, int]:
    """Return how often each word occurs, whatever its case."""
    counts: dict[str, int] = {}
    for word in text.split():
        counts[word] = counts.get(word, 0) + 1
    return counts
