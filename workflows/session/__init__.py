"""The workflow `AgentSession`: an agent that lives over many executions."""
