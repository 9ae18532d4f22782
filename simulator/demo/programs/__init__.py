"""Programs that the demo's real agent runs: each a script of its own, copied beside the agent's configuration."""
