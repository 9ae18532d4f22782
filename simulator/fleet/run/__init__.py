"""A run: one coordinator, one worker process for each core, and the messages between them."""
