"""A door with an opener and a contact, for device-agent."""
