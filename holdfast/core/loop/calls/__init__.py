"""Parts of the tool calls of a step: which of them cannot run, and those that a script makes."""
