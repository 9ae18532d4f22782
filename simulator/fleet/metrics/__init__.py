"""Measurement: what was asked, what came, and how much the generator itself can be trusted."""
