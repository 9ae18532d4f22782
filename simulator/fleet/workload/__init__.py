"""What a worker plays: devices under load, a storm of labels, the limiter's test, or history."""
