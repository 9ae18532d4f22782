"""The kinds of faults: a module for each, found by the registry."""
