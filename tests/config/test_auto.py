"""`rounds`, `privacy.clip` and `algorithm.lr` = "auto": the law, where its numbers come from, and what is refused."""

from __future__ import annotations

import math
from typing import Any

import pytest

from gossamer.accounting.profiles import gdp_mu
from gossamer.config.auto import CLIP, MOST_ROUNDS, ROUNDS, A
from gossamer.config.layers import resolve
from gossamer.errors import UserError

RECIPE: dict[str, Any] = {
    "nodes": 20,
    "rounds": "auto",
    "data": {"kind": "fashion-mnist"},
    "model": {"kind": "softmax", "bias": False},
    "topology": {"kind": "ring"},
    "algorithm": {"kind": "full-lot"},
    "privacy": {"epsilon": 1.0, "delta": 1e-4},
}


def lr(**changes: Any) -> float:
    value = resolve(RECIPE, {key.replace("__", "."): v for key, v in changes.items()}).algorithm.lr
    assert isinstance(value, float)
    return value


def test_all_three_are_settled() -> None:
    config = resolve(RECIPE)
    assert config.rounds == ROUNDS
    assert config.privacy.clip.bound == CLIP  # type: ignore[union-attr]
    noise = 1 / (gdp_mu(1.0, 1e-4) * 3000 * math.sqrt(20))
    assert config.algorithm.lr == pytest.approx(A / noise * 0.1 / (ROUNDS * CLIP), rel=1e-3)


def test_the_law() -> None:
    """Same way for the model whatever the rounds, the clip and the momentum; twice the noise, half the way."""
    base = lr()
    assert lr(rounds=200) == pytest.approx(base / 2, rel=1e-3)
    assert lr(privacy__clip={"kind": "constant", "bound": 0.4}) == pytest.approx(base / 4, rel=1e-3)
    assert lr(algorithm__momentum=0.0) == pytest.approx(10 * base, rel=1e-3)
    assert lr(data__records=1500) == pytest.approx(base / 2, rel=1e-3)
    assert lr(data__records=[1500] * 20) == pytest.approx(base / 2, rel=1e-3)
    assert lr(privacy__adjacency="replace-one") == pytest.approx(base / 2, rel=1e-3)
    assert lr(nodes=80) == pytest.approx(base / 2, rel=1e-3)  # a quarter of the records, twice as many noises
    assert lr(privacy__epsilon=3.0, rounds=100) / base == pytest.approx(gdp_mu(3.0, 1e-4) / gdp_mu(1.0, 1e-4), rel=1e-3)


def test_rounds_grow_only_where_there_is_little_noise() -> None:
    def rounds(epsilon: float) -> int:
        return resolve(RECIPE, {"privacy.epsilon": epsilon}).rounds

    assert [rounds(epsilon) for epsilon in (0.1, 1.0)] == [ROUNDS, ROUNDS]
    assert ROUNDS < rounds(3.0) < rounds(10.0) < rounds(30.0)
    assert rounds(1000.0) == MOST_ROUNDS


def test_the_strictest_node_decides() -> None:
    assert lr(privacy__epsilon=[1.0] * 19 + [3.0]) == lr()


def test_rows_left_out_count() -> None:
    assert lr(data__train_rows=30_000) == pytest.approx(lr() / 2, rel=1e-3)
    assert lr(data__held_out=30_000) == pytest.approx(lr() / 2, rel=1e-3)


def test_the_words_work_anywhere() -> None:
    config = resolve(
        RECIPE, {"algorithm.kind": "dp-dsgt", "privacy.clip": "auto", "algorithm.lr": "auto", "rounds": 50}
    )
    assert config.privacy.clip.kind == "constant"
    assert config.rounds == 50


def test_a_settled_configuration_resolves_to_itself() -> None:
    config = resolve(RECIPE)
    assert resolve(config.model_dump(exclude_none=True)) == config


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"privacy.epsilon": None}, "privacy.epsilon"),
        ({"privacy.epsilon": -1.0}, "privacy.epsilon"),
        ({"privacy.epsilon": "much"}, "privacy.epsilon"),
        ({"privacy.delta": 2.0}, "privacy.delta"),
        ({"nodes": "many"}, "nodes"),
        ({"nodes": 0}, "nodes"),
        ({"data.kind": "synthetic-classification"}, "data.records"),
        ({"data.kind": "csv"}, "data.records"),
        ({"privacy.clip": {"kind": "quantile"}}, "algorithm.lr"),
        ({"rounds": "often"}, "algorithm.lr"),
        ({"algorithm.momentum": 1.5}, "algorithm.momentum"),
        ({"algorithm.lr": "automatic"}, "algorithm.lr"),
        ({"privacy.clip": "automatic"}, "algorithm.lr"),
    ],
)
def test_mistakes_name_the_key(changes: dict[str, Any], key: str) -> None:
    with pytest.raises(UserError) as caught:
        resolve(RECIPE, changes)
    assert caught.value.key == key
    assert "\n" not in str(caught.value)
