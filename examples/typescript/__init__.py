"""Tools that a worker in TypeScript serves, and their declaration in Python."""
