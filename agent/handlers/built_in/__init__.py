"""The handlers that the agent brings along: each module here holds one, and has the name of its command."""
