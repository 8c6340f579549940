"""An agent that mends a failing test in a small repository inside its workspace; README.md says how it is run."""
