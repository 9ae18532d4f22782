"""Command handlers: what a handler is, which ones there are, and one file for each built-in."""
