"""A payload profile for labels: see profile.py."""
