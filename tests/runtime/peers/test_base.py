"""What `Links` promise, held against the simulated ones."""

from __future__ import annotations

from gossamer.runtime.peers.base import Arrival, Links
from gossamer.runtime.peers.simulated import Network


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
