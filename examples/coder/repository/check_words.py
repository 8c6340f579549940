"""What `words.count` is to do: `python3 -m unittest check_words`, or pytest."""

from __future__ import annotations

import unittest

from words import count  # type: ignore[import-not-found]  # beside this file, in the workspace


class CountTest(unittest.TestCase):
    """The cases."""

    def test_words_are_counted(self) -> None:
        """Each word by itself."""
        self.assertEqual(count("one two two"), {"one": 1, "two": 2})

    def test_case_does_not_matter(self) -> None:
        """The one that fails."""
        self.assertEqual(count("One one ONE"), {"one": 3})
