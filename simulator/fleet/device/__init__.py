"""The virtual device: the agent's own core, with memory for a disk and bytes for a network."""
