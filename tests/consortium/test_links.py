"""What `Links` promise, held against the simulated ones."""

from __future__ import annotations

import time

from tests.support.simulated_links import Network

from gossamer.consortium.links import Arrival, Links, Member, NoLinks


def test_a_deadline_that_has_passed_looks_and_does_not_wait() -> None:
    network = Network(["a", "b"])
    found: list[Arrival | None] = []

    def a() -> None:
        links: Links = network.links("a")
        links.send("b", b"parcel", 1.0)
        found.append(links.receive(-1.0))
        assert network.clock() == 0.0
        links.close()

    def b() -> None:
        links: Links = network.links("b")
        found.append(links.receive(2.0))
        assert network.clock() < 0.1  # as soon as it is there
        assert links.receive(0.0) is None
        assert set(links.states().values()) <= {"up", "suspect", "down"}

    network.run({"a": a, "b": b})
    assert found == [None, Arrival("a", b"parcel")]


def test_who_is_not_in_a_new_roster_is_cut_off() -> None:
    network = Network(["a", "b", "c"])
    found: list[Arrival | None] = []

    def a() -> None:
        links: Links = network.links("a")
        links.update([Member(name, "", b"", None, 1) for name in ("a", "c")])
        assert set(links.states()) == {"c"}
        found.extend([links.receive(1.0), links.receive(1.0)])

    def sends(name: str) -> None:
        network.links(name).send("a", name.encode(), 1.0)

    network.run({"a": a, "b": lambda: sends("b"), "c": lambda: sends("c")})
    assert found == [Arrival("c", b"c"), None]


def test_without_links_nothing_comes_and_nobody_is_there() -> None:
    links: Links = NoLinks()
    links.send("b", b"parcel", 1.0)
    links.update([])
    began = time.monotonic()
    assert links.receive(began + 0.05) is None
    assert time.monotonic() - began >= 0.05
    assert links.states() == {}
    links.close()
