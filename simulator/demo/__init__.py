"""The demo: the whole story in under a minute, and the proofs that it is true."""
