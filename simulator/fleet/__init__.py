"""A fleet of virtual devices: the agent's own core in each, on one asyncio loop."""
