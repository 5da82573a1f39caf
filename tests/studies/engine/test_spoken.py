"""Words of other machines do nothing to a terminal, and a connection that others can use is named."""

from __future__ import annotations

from gossamer.studies.engine.spoken import open_to_others, plain


def test_a_workers_words_are_plain_and_an_open_connection_is_named() -> None:
    assert plain("a\x1b[2J\nb" * 500) == ("a [2J b" * 500)[:1000]
    assert plain({"no": "text"}) == "{'no': 'text'}"
    for closed in ("tls://10.0.0.1:1", "tcp://127.0.0.1:1", "tcp://[::1]:1", "tcp://localhost:1"):
        assert open_to_others(closed) == ""
    assert "without TLS" in open_to_others("tcp://10.0.0.1:8786")
