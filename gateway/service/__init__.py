"""The side towards the service: one key, one budget, and what is fetched, reported and forwarded within it."""
