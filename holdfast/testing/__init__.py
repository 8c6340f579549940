"""Test doubles that users need too: scripted models and a fake OpenAI-compatible server."""
