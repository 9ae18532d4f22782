"""Profiles: the local service answers as a server that was written with other choices, for one account at a time."""
