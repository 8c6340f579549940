"""Models that lack a part of what agents need: it is asked for in words, or by other means. Speaks no API itself."""
