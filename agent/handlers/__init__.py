"""Command handlers: what a handler is, which ones there are, and the built-in ones."""
