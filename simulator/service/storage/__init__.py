"""What the service keeps: tables, the one writing thread, and the statements of each group."""
