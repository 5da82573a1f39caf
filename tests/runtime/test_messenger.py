"""What ranks do with each other, over the transport in memory: who is to blame stands in every failure."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch

from gossamer.errors import UserError
from gossamer.runtime.messenger import Messenger
from gossamer.runtime.transport.memory import Memory, MemoryTransport
from gossamer.runtime.wire import Label, Layout

BLOCKS = [range(0, 2), range(2, 5)]
RUN = "00112233aabbccdd"


def together(work: Callable[[Messenger], Any], timeout: float = 20.0) -> list[Any]:
    memory = Memory(2)

    def one(rank: int) -> Any:
        messenger = Messenger(MemoryTransport(memory, rank, timeout), BLOCKS)
        try:
            return work(messenger)
        except UserError as error:
            return str(error)
        finally:
            messenger.watch.close()

    with ThreadPoolExecutor(2) as threads:
        return list(threads.map(one, range(2)))


def test_items_come_in_the_order_of_the_ranks_and_as_json() -> None:
    found = together(lambda m: m.gather([f"ε of {m.rank}", m.rank, None]))
    assert found == [["ε of 0", 0, None, "ε of 1", 1, None]] * 2


def test_a_sum_is_everybodys() -> None:
    for total in together(lambda m: m.sum(torch.tensor([1.0, float(m.rank)]))):
        assert total.tolist() == [2.0, 1.0]


def exchanged(value: float, label: Label) -> Callable[[Messenger], Any]:
    """Rank 0 sends two rows of `value` under this label; rank 1 expects round 4."""
    layout = Layout.of([torch.zeros(2, 3)])

    def work(m: Messenger) -> Any:
        buffer = m.empty(layout.size(2))
        if m.rank == 0:
            layout.views(buffer, 2)[0].fill_(1.0)
            layout.views(buffer, 2)[0][1] = value
            label.write(buffer, layout, 2)
            m.wait(m.start({}, {1: buffer}, 2**31 + 4)[1][1], 1, 4)
            return "sent"
        m.wait(m.start({0: buffer}, {}, 2**31 + 4)[0][0], 0, 4)
        m.check(Label(RUN, 4, 0, 0), buffer, layout, [0, 1])
        return layout.views(buffer, 2)[0].clone()

    return work


def test_a_message_that_was_due_is_delivered() -> None:
    _, found = together(exchanged(2.0, Label(RUN, 4, 0, 0)))
    assert found.tolist() == [[1.0] * 3, [2.0] * 3]


def test_one_that_was_not_is_refused_with_its_senders_name() -> None:
    _, found = together(exchanged(2.0, Label(RUN, 5, 0, 0)))
    assert "rank 0 (nodes 0–1)" in found
    assert "round 4 was refused: its round is not the one that was due" in found


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_values_that_must_not_be_averaged_are_refused_with_their_node(bad: float) -> None:
    _, found = together(exchanged(bad, Label(RUN, 4, 0, 0)))
    assert "node 1 (rank 0) sent NaN or infinite values in round 4: refused" in found
