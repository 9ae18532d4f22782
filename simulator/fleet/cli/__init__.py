"""The commands of the fleet: click and nothing else."""
