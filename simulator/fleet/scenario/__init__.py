"""Scenarios: what a fleet run does, as a YAML document that is read whole, checked whole and then frozen."""
