"""Worker Deployments: which build of the workers gets new runs, and what still runs on the others."""
