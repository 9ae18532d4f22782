"""A command for many devices, in waves: the next wave gets it only once the one before has done well."""
