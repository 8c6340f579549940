"""Any model of Pydantic AI as a `Model`: what its providers send, kept and returned as Pydantic AI's own parts."""
