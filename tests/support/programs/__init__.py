"""Programs that agents under test run: each a script of its own, copied beside the agent's configuration."""
