"""The HTTP front: the device paths of the specification."""
