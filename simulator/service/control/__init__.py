"""The control surface, ``/_emulator/...``: what only an emulator has."""
