"""Large data outside Temporal's history: in a folder or a bucket, by content. Decides nothing about agents."""
