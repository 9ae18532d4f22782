"""Commands, readings and results over HTTP, over MQTT, or commands over both."""
