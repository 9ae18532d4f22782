"""What the gateway keeps: commands, results and readings on their way, in one SQLite file with one writer."""
