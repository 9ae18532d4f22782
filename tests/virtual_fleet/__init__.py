"""Whole fleet runs on virtual time: the real plan, workers, conductor and record; engines, service and broker without I/O."""
