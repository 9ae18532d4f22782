"""The resources of the specification: one file each, SQL and handlers side by side."""
