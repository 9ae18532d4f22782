"""What people see of a fleet run: while it runs, afterwards, and beside another run."""
