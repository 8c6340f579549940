"""Capabilities that come with Holdfast: tools, hooks and prompts which an agent takes by name."""
