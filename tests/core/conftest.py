"""Hypothesis for these tests: no time limit per example, because a loaded machine is no bug."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("holdfast", deadline=None, max_examples=40)
settings.load_profile("holdfast")
