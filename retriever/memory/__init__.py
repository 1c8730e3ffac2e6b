"""An agent's long-term memory, kept in the index itself."""
