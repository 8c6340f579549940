"""Capabilities that come with Holdfast: tools, hooks and prompts which an agent takes by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core.agent.capability_prompts import PromptContext
from holdfast.lazy_names import lazy_names

if TYPE_CHECKING:
    from holdfast.capabilities.skill_folders import skills
    from holdfast.capabilities.web_pages import fetch_url

__all__ = ["PromptContext", "fetch_url", "skills"]


__getattr__ = lazy_names(__name__, {"fetch_url": "web_pages", "skills": "skill_folders"}, {}, "a capability")
