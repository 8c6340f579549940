"""A session as a value, and the events that observers of one are sent."""
