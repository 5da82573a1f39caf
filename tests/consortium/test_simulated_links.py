"""Links that lose, delay and repeat as told, by a clock that only waits move; the same every time."""

from __future__ import annotations

import pytest
from tests.support.simulated_links import Faults, Network


def told(faults: Faults, seed: int = 0, count: int = 400) -> list[tuple[float, bytes]]:
    network, found = Network(["a", "b"], faults, seed), []

    def a() -> None:
        for i in range(count):
            network.links("a").send("b", i.to_bytes(2, "big"), 1.0)

    def b() -> None:
        links = network.links("b")
        while (arrival := links.receive(10.0)) is not None:
            assert arrival.sender == "a"
            found.append((network.clock(), arrival.message))
        assert network.clock() == 10.0

    network.run({"a": a, "b": b})
    return found


def test_faults_are_as_often_as_they_are_said_to_be() -> None:
    assert [int.from_bytes(raw, "big") for _, raw in told(Faults())] == list(range(400))
    assert 240 < len(told(Faults(loss=0.3))) < 320
    assert 440 < len(told(Faults(repeat=0.2))) < 520
    late = told(Faults(delay=(0.1, 0.5)))
    assert [raw for _, raw in late] != sorted(raw for _, raw in late)  # they overtake each other
    assert late[0][0] >= 0.1
    assert late[-1][0] <= 0.5
    assert told(Faults(loss=0.3), seed=3) == told(Faults(loss=0.3), seed=3)


def test_an_error_of_a_site_ends_the_run() -> None:
    network = Network(["a"])

    def fail() -> None:
        raise KeyError("a")

    with pytest.raises(KeyError):
        network.run({"a": fail})


def test_a_cut_link_and_a_site_that_is_off_get_nothing_and_a_stopped_one_gets_it_later() -> None:
    network, found = Network(["a", "b", "c", "d"]), {}
    network.cut.add(("a", "b"))

    def a() -> None:
        for to in "bcd":
            network.links("a").send(to, b"x", 1.0)

    def wait(name: str) -> None:
        if name == "c":
            network.sleep(name, 0.5)
        if name == "d":
            network.pause(name, 0.5)
        found[name] = network.links(name).receive(1.0)

    network.run({"a": a, **{name: lambda name=name: wait(name) for name in "bcd"}})
    assert found["b"] is None
    assert found["c"] is None
    assert found["d"] is not None
