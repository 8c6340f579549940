"""The capability `workspace`: files and commands of an agent, in a container or a plain folder."""
