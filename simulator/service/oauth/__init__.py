"""Partner access: the authorization-code grant of OAuth 2.0 (RFC 6749) with PKCE (RFC 7636), after RFC 9700's advice.

What is decided stands in pure functions (``authorize``, ``token``, ``family``, ``pkce``); what is kept is the business
of ``storage.clients``, ``storage.grants`` and ``storage.tokens``; ``approve`` is what a user's yes or no comes to. The
specification's sections "Step 1: authorize", "Step 2: exchange the code" and "Refresh" are the source of every rule.
"""
