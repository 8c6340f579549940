"""What commands draw in a terminal: screens, tables, lines and prompts."""
