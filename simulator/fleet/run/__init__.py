"""A run: one coordinator, one worker process for each core, and what they say to each other."""
