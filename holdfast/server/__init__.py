"""The Temporal server as Holdfast needs it: embedded, its namespaces, the doctor, the codec server."""
