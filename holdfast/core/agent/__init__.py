"""What an agent is: its definition, hooks and budget, and the state of one execution."""
