"""The tools whose calls the loop answers itself (`ToolTraits.loop`), and the critique of the final answer."""
