"""The classes of payloads, a module for each kind of trouble; each function makes the cases of one class."""
