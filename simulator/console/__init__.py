"""The console: pages in a browser over the public interface and the control surface of the local service."""
