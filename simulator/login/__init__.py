"""Signing in from a terminal: authorization code with PKCE over a loopback redirect (RFC 8252, RFC 7636)."""
