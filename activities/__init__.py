"""The side effects: model calls, tool calls, hooks, records, sinks. Shares only the core's types with workflows."""
