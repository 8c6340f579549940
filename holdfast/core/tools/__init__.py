"""What a tool is: the function or declaration, its schema and traits, what it may know, and what it returns."""
