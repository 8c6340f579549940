"""What a conversation is made of: messages, steps, decisions about tool calls, stop reasons."""
