"""How Holdfast scales on Temporal's production server, for docs/scale.md: `python -m bench.scale`."""
