"""OpenAI's Responses API, spoken without state at the provider."""
