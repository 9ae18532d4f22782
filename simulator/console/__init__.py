"""The console: pages on which people see and steer a service, on its public interface and control surface alone."""
