"""Links: to hosts that look like the good one, and in forms that two readers read in two ways."""

from __future__ import annotations

from collections.abc import Iterator

from simulator.labels.corpus.case import NO_LABEL, NOT_SIGNED, Case, Setting, case


def look_alike_hosts(setting: Setting) -> Iterator[Case]:
    """A signed label whose link leads elsewhere. The signature is over the host as well."""
    link, host = setting.signed("link"), setting.host
    name, _, rest = host.partition(".")
    in_ascii = (
        ("a digit for a letter", host.replace("o", "0").replace("l", "1") if set("ol") & set(host) else "1" + host),
        ("another top level", host.rpartition(".")[0] + ".co" if "." in host else host + ".co"),
        ("a letter more", name + name[-1] + ("." + rest if rest else "")),
        ("a letter less", host[1:] if len(name) > 1 else "x" + host),
        ("the good host as a subdomain", host.partition(":")[0] + ".evil.example"),
        ("the good host with hyphens", host.partition(":")[0].replace(".", "-") + ".example"),
        ("rn for m", host.replace("m", "rn") if "m" in host else "rn" + host),
        ("a host in punycode", "xn--nboard-wqf.example.com"),
        ("an address", "203.0.113.7"),
        ("this machine", "localhost"),
        ("another port", host.partition(":")[0] + (":9443" if host.endswith(":8443") else ":8443")),
    )
    for wrong, other in in_ascii:
        yield case(f"{wrong}: {other}", link.replace(f"//{host}/", f"//{other}/"), NOT_SIGNED)
    for wrong, other in (
        ("a Cyrillic letter", "\u043enboard.example.com"),
        ("a Greek letter", "onb\u03bfard.example.com"),
        ("full-width letters", "\uff4f\uff4e\uff42oard.example.com"),
        ("an ideographic full stop", "onboard\u3002example.com"),
        ("a soft hyphen", "on\u00adboard.example.com"),
        ("a zero-width joiner", "on\u200dboard.example.com"),
        ("a right-to-left override", "\u202emoc.elpmaxe.draobno"),
        ("a division slash", f"{host}\u2215.evil.example"),
        ("the good host as a user name", f"{host}@evil.example"),
        ("the good host as a user name and password", f"{host}:443@evil.example"),
        ("a backslash", f"evil.example\\@{host}"),
        ("a space", f"{host} .evil.example"),
        ("a dot at the end", host + "."),
        ("two dots", host.replace(".", "..", 1) if "." in host else host + ".."),
        ("a percent sign", host.replace(".", "%2e", 1) if "." in host else "%6c" + host),
        ("an underscore", "on_board.example.com"),
        ("no host", ""),
        ("port 0", host.partition(":")[0] + ":0"),
        ("port 65536", host.partition(":")[0] + ":65536"),
        ("an empty port", host.partition(":")[0] + ":"),
        ("an address in brackets", "[2001:db8::1]"),
        ("a label of 64 letters", "a" * 64 + ".example.com"),
    ):
        yield case(wrong, link.replace(f"//{host}/", f"//{other}/"), NO_LABEL)


def link_forms(setting: Setting) -> Iterator[Case]:
    """Links that mean the same to some readers, and not to others."""
    link = setting.plain("link")
    query = link.partition("?")[2]
    p, d = query.split("&")
    start = link.partition("?")[0]
    for wrong, text in (
        ("not encrypted", link.replace("https", "http")),
        ("without a scheme", link.removeprefix("https:")),
        ("with one slash", link.replace("//", "/", 1)),
        ("with three slashes", link.replace("//", "///", 1)),
        ("another scheme", link.replace("https", "ftp")),
        ("inside another scheme", "view-source:" + link),
        ("another path", link.replace("/onboard?", "/onboarding?")),
        ("no path", link.replace("/onboard?", "?")),
        ("a slash after the path", link.replace("/onboard?", "/onboard/?")),
        ("a path with dots", link.replace("/onboard?", "/x/../onboard?")),
        ("a path parameter", link.replace("/onboard?", "/onboard;x=1?")),
        ("a path in percent", link.replace("/onboard?", "/%6fnboard?")),
        ("members in another order", f"{start}?{d}&{p}"),
        ("without the product", f"{start}?{d}"),
        ("without the identifier", f"{start}?{p}"),
        ("without members", start),
        ("a member more", link + "&utm_source=label"),
        ("a member before", f"{start}?x=1&{query}"),
        ("a semicolon for the ampersand", f"{start}?{p};{d}"),
        ("an ampersand as HTML has it", f"{start}?{p}&amp;{d}"),
        ("an ampersand at the end", link + "&"),
        ("a fragment", link + "#top"),
        ("an empty fragment", link + "#"),
        ("the members in the fragment", link.replace("?", "#")),
        ("a letter in percent", link.replace(setting.identifier, "%53IM-000001")),
        ("a hyphen in percent", link.replace(setting.identifier, "SIM%2D000001")),
        ("twice in percent", link.replace(setting.identifier, "SIM%252D000001") + "&"),
        ("small hexadecimal digits", link.replace(setting.identifier, "SIM%2f1")),
        ("a plus for a space", link.replace(setting.identifier, "SIM+1")),
        ("letters that are not in percent", link.replace(setting.identifier, "T\u00fcr")),
        ("no UTF-8 in percent", link.replace(setting.identifier, "%ff%fe")),
        ("an overlong form in percent", link.replace(setting.identifier, "%c0%af")),
        ("half a percent", link.replace(setting.identifier, "SIM%2")),
        ("a percent sign alone", link.replace(setting.identifier, "100%")),
        ("NUL in percent", link.replace(setting.identifier, "SIM%00")),
        ("a line break in percent", link.replace(setting.identifier, "SIM%0A1")),
        ("a space in percent at the end", link + "%20"),
    ):
        yield case(wrong, text, NO_LABEL)
