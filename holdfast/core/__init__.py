"""The pure core: what an agent's state is and how it moves. No clock, no randomness, no I/O."""
