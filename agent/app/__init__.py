"""Builds the parts of the agent, wires them, starts them in order, stops them in reverse. It imports all others."""
