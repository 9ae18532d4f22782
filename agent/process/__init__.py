"""Programs of the device, and with whose rights files are opened."""
