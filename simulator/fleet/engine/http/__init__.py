"""HTTP/1.1 for a fleet: callbacks on one loop, no task for a request, and a quiet socket costs little."""
