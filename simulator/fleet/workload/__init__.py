"""What a worker plays: devices under load, a storm of labels, or history."""
