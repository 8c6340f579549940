"""Files of messages and tools: what is taken, where it is stored, and how a model call gets its bytes."""
