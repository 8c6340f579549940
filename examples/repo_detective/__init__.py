"""An agent that answers questions about a folder, and a demo that kills its worker half-way."""
