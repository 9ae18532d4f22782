"""The kinds of signals: a module for each, found by the registry."""
