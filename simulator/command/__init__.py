"""Sending commands to devices, as an operator does: signed or not, and what became of them."""
