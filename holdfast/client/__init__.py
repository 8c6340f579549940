"""What other programs use to start, watch and stop agents. Talks to workflows by name, never imports them."""
