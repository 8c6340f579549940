"""What every part of the core stands on: frozen values, bounds, errors, JSON, text. Imports nothing else of ours."""
