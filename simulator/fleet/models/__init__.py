"""Device models: what devices of one kind read and do, and in which condition each of them is at any instant."""
