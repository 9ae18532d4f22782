"""``device-agent doctor``: looks at everything an agent needs, and says of each fault its cause and its fix."""
