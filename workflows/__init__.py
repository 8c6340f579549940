"""This deployment's Temporal workflows: the core's commands in, Temporal's calls out."""
