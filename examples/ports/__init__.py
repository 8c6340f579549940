"""Examples of other libraries, written with Holdfast."""
