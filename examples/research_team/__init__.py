"""A lead that lets researchers read a folder of notes side by side and a critic check them, within one budget."""
