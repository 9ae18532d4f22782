"""Sensors: what one is (``base``), which there are (``registry``: a new built-in goes there), how they are read."""
