"""The MQTT front: topics of devices, and the broker's configuration."""
