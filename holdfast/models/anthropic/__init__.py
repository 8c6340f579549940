"""Anthropic's Messages API: thinking that goes back signed, tool use, marks for the prompt cache."""
