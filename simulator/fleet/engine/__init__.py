"""Engines: many connections on one loop."""
