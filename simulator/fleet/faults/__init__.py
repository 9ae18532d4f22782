"""Faults that are made on purpose, one file each, with the ground truth of what was done."""
