"""Where the pages of partner access are. All of them are open to everybody: a session or a form says who it is."""

from __future__ import annotations

from typing import Final

from agent.wire import paths

AUTHORIZE: Final = paths.OAUTH_AUTHORIZE
ANSWER: Final = "/partner-oauth-answer"
"""Where the forms of the authorize page go; that one takes GET only, as the specification has it."""
ACCOUNT: Final = "/account"
ACCOUNT_SIGN_IN: Final = "/account/sign-in"
ACCOUNT_SIGN_OUT: Final = "/account/sign-out"
ACCOUNT_REVOKE: Final = "/account/revoke"
PLAYGROUND: Final = "/playground"
STATIC: Final = "/oauth/static/"
STYLE: Final = f"{STATIC}pages.css"
ICON: Final = f"{STATIC}icon.svg"
PLAYGROUND_SCRIPT: Final = f"{STATIC}playground.js"

PAGES: Final = frozenset(
    {
        AUTHORIZE,
        ANSWER,
        ACCOUNT,
        ACCOUNT_SIGN_IN,
        ACCOUNT_SIGN_OUT,
        ACCOUNT_REVOKE,
        PLAYGROUND,
        STYLE,
        ICON,
        PLAYGROUND_SCRIPT,
    }
)
