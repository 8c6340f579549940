"""What an agent is: its definition, tools, hooks and budget, and the state of one execution."""
