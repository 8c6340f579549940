"""A support desk: one session per customer, and refunds above a limit that a person decides about."""
