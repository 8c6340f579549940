"""Names and shapes that cross processes: contracts, transcripts, records, execution events, search attributes."""
