"""Fleet runs in the console: those of a folder, and those that are started from it."""
