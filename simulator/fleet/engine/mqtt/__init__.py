"""MQTT 5 for very many devices: packets by the ``mqtt5`` codec, one protocol object and no task for each session."""
