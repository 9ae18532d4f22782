"""Workers on several machines: Ray places and carries messages, and each worker is a process as on one."""
