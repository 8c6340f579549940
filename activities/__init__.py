"""The side effects: model calls and tool calls. Shares only the core's types with the workflows."""
