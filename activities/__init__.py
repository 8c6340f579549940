"""The side effects: model calls, tool calls and hooks. Shares only the core's types with the workflows."""
