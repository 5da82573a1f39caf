"""What other machines say, and what is said of them, as a terminal may show it."""

from __future__ import annotations


def plain(said: object) -> str:
    """Words of another machine's, for a terminal that would obey some of them."""
    return "".join(sign if sign.isprintable() else " " for sign in str(said)[:1000])


def open_to_others(address: str) -> str:
    """What to say of a connection that anybody on its way reads, at a scheduler that runs what anybody sends."""
    if address.startswith("tls://") or address.rsplit("://", maxsplit=1)[-1].startswith(
        ("127.", "localhost", "[::1]")
    ):
        return ""
    return " (without TLS: whoever reaches the scheduler can run code as you; see docs/cluster.md)"
