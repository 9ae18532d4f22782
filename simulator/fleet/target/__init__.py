"""The target of a run: whether it may be loaded, the way in, what is made there, and how that is taken away again."""
