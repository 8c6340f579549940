"""The workflow `AgentExecution`: one request of an agent, from start to end."""
