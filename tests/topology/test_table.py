"""The table [topology]: options, and what a network must be able to do."""

from typing import Any

import numpy as np
import pytest

from gossamer.errors import UserError
from gossamer.options.registry import options_of
from gossamer.topology.kinds import build, topologies


def test_kinds_name_their_options() -> None:
    common = [option.name for option in options_of(topologies["ring"])]
    assert common == ["mixing", "dropout", "slow"]
    assert [(o.name, o.required) for o in options_of(topologies["erdos-renyi"])[3:]] == [("p", True)]
    assert [(o.name, o.default) for o in options_of(topologies["random-regular"])[3:]] == [("degree", 4)]
    for kind in topologies.kinds.values():
        assert all(option.meaning for option in options_of(kind)), kind
        assert kind.__doc__


def test_slow_links_need_weights_that_survive_them() -> None:
    with pytest.raises(UserError, match=r"topology\.slow .* directed"):
        build("exponential", nodes=8, weights="doubly", seed=0, slow={"share": 0.5, "every": 2})


def test_directed_doubly_is_refused() -> None:
    with pytest.raises(UserError, match=r"topology.dropout = 0.1 .*'directed-ring'.* ring, torus"):
        build("directed-ring", nodes=5, weights="doubly", seed=0, dropout=0.1)


def test_unsymmetric_doubly_matrix_is_refused() -> None:
    shift = np.roll(np.eye(3), 1, axis=0)
    M = 0.5 * np.eye(3) + 0.3 * shift + 0.2 * shift.T
    assert build("matrix", nodes=3, weights="doubly", seed=0, matrix=M).weights(0).shape == (3, 3)
    with pytest.raises(UserError, match="symmetric"):
        build("matrix", nodes=3, weights="doubly", seed=0, matrix=M, dropout=0.1)


@pytest.mark.parametrize("rate", [-0.1, 1.0, float("nan")])
def test_rate_is_checked(rate: float) -> None:
    with pytest.raises(UserError, match=r"topology\.dropout"):
        build("ring", nodes=5, weights="doubly", seed=0, dropout=rate)


@pytest.mark.parametrize(
    ("options", "period"),
    [({"dropout": 0.2}, None), ({"slow": {"share": 0.5, "every": 2}}, 2)],
    ids=["lost", "slow"],
)
@pytest.mark.parametrize(("kind", "weights"), [("ring", "doubly"), ("directed-ring", "column")])
def test_links_are_lost_where_weights_survive_it(
    kind: str, weights: str, options: dict[str, Any], period: int | None
) -> None:
    whole, thinned = (build(kind, nodes=30, weights=weights, seed=0, **more) for more in ({}, options))
    assert (whole.period, thinned.period) == (1, period)
    assert 0 < len(thinned.edges(0)) < len(whole.edges(0))
    np.testing.assert_allclose(thinned.weights(0).sum(axis=0), 1)


def test_the_settings_that_are_kept_make_the_same_network_again() -> None:
    first = build("erdos-renyi", nodes=8, weights="doubly", seed=3, p=0.5, dropout=0.2, mixing="uniform")
    assert first.settings == {"seed": 3, "slow": None, "mixing": "uniform", "dropout": 0.2, "p": 0.5}
    again = build(first.kind, nodes=8, weights="doubly", **first.settings)
    np.testing.assert_array_equal(first.weights(5).toarray(), again.weights(5).toarray())


def test_a_kind_says_how_many_nodes_it_needs_before_it_is_made() -> None:
    for name, kind in topologies.kinds.items():
        if kind.fewest_nodes > 1:
            with pytest.raises(
                UserError, match=rf"'{name}' needs at least {kind.fewest_nodes} nodes \(nodes = 1\)"
            ):
                kind.graph(_bare(kind), 1, np.random.default_rng(0))


def _bare(kind: type) -> object:
    return object.__new__(kind)
