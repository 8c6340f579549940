"""What `holdfast doctor` looks at: facts are gathered in one place and judged, without asking anybody, in another."""
