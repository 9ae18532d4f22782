"""Partner access: the authorization-code grant of OAuth 2.0 (RFC 6749) with PKCE (RFC 7636), after RFC 9700's advice.

``pages`` and ``endpoints`` are what browsers and partners see, ``provider`` decides with oauthlib, ``store`` and
``tokens`` keep clients, people, grants and tokens. The specification's sections "Step 1: authorize", "Step 2: exchange
the code" and "Refresh" are the source of every rule.
"""
