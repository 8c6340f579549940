"""OpenAI's Chat Completions API, as OpenAI and many others serve it."""
