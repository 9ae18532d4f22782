"""The plan: every event of a run as a function of seed, device and time, the same however the devices are dealt out."""
