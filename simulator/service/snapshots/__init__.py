"""The whole state of a service as one file of JSON lines, the same for every database (decision 49)."""
