"""Settings, and the connection to a Temporal server: below everything that talks to one."""
