"""The agent loop as a step function: an event goes in, a new state and commands come out."""
