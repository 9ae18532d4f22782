"""The agent's threads: services, lanes, and the supervisor that watches them."""
