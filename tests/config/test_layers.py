"""Layers of a configuration, and mistakes as one sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tomli_w
from tests.support.refusals import expect_refusal

from gossamer.config import recipes
from gossamer.config.layers import merge, named, parse_overrides, replaced, resolve, stored
from gossamer.config.methods import PRESETS, algorithms
from gossamer.errors import UserError, short
from gossamer.models.networks import Own, Withheld

BASE: dict[str, Any] = {
    "nodes": 4,
    "rounds": 10,
    "data": {"kind": "digits"},
    "model": {"kind": "softmax"},
    "topology": {"kind": "ring"},
    "algorithm": {"kind": "dyn-d2p", "lr": 0.1},
    "privacy": {"epsilon": 1.0},
}


def with_(**changes: Any) -> dict[str, Any]:
    return merge(BASE, changes)


def test_a_preset_fills_in_only_what_is_left_out() -> None:
    config = resolve(with_(privacy={"clip": {"start": 5.0}}))
    assert config.privacy.clip.kind == "decaying"
    assert config.privacy.clip.start == 5.0
    assert config.privacy.clip.ratio == 3.0
    other = resolve(with_(privacy={"clip": {"kind": "constant", "bound": 2.0}}))
    assert other.privacy.clip.bound == 2.0


@pytest.mark.parametrize("kind", sorted(PRESETS))
@pytest.mark.parametrize("mode", ["sound", "paper"])
def test_every_method_resolves_in_both_modes(kind: str, mode: str) -> None:
    config = resolve(BASE, {"algorithm.kind": kind, "mode": mode})
    assert (config.algorithm.kind, config.mode) == (kind, mode)


def test_the_resolved_configuration_resolves_to_itself() -> None:
    for name in recipes.names():
        config = resolve(recipes.read(name))
        again = resolve(config.model_dump(exclude_none=True))
        assert again == config


def test_paper_table_applies_in_paper_mode_and_overrides_win() -> None:
    recipe = with_(paper={"privacy": {"sampling": {"kind": "single"}}, "rounds": 7})
    assert resolve(recipe).rounds == 10
    paper = resolve(recipe, {"mode": "paper"})
    assert (paper.rounds, paper.privacy.sampling.kind) == (7, "single")
    assert resolve(recipe, {"mode": "paper", "rounds": 3}).rounds == 3


def test_another_method_brings_its_own_parts_at_the_same_clip() -> None:
    recipe = with_(
        privacy={
            "clip": {"kind": "decaying", "start": 6.0, "ratio": 9.0},
            "noise": {"source": "seeded", "schedule": {"kind": "growing-budget", "ratio": 5.0}},
        }
    )
    const = resolve(recipe, {"algorithm.kind": "const-d2p"}).privacy
    assert (const.clip.kind, const.clip.bound, const.noise.schedule.kind) == ("constant", 2.0, "constant")
    assert const.noise.source == "seeded"
    dyn_c = resolve(recipe, {"algorithm.kind": "dyn-c-d2p"}).privacy
    assert (dyn_c.clip.ratio, dyn_c.noise.schedule.kind) == (9.0, "constant")
    dyn_mu = resolve(recipe, {"algorithm.kind": "dyn-mu-d2p"}).privacy
    assert (dyn_mu.clip.kind, dyn_mu.clip.bound, dyn_mu.noise.schedule.ratio) == ("constant", 2.0, 5.0)
    assert resolve(recipe, {"algorithm.kind": "sgp"}).privacy.noise.schedule.kind == "none"
    back = resolve(
        with_(algorithm={"kind": "const-d2p"}, privacy={"clip": {"kind": "constant", "bound": 2.0}}),
        {"algorithm.kind": "dyn-d2p"},
    )
    assert back.privacy.clip.start == pytest.approx(2.0 * 3.0**0.5)
    assert resolve(recipe, {"algorithm.kind": "const-d2p"}).algorithm.lr == 0.1
    lots = with_(privacy={"clip": {"kind": "decaying", "start": 6.0, "ratio": 9.0, "of": "lot"}})
    assert resolve(lots, {"algorithm.kind": "const-d2p"}).privacy.clip.of == "lot"
    explicit = resolve(recipe, {"algorithm.kind": "const-d2p", "privacy.clip.bound": 9.0}).privacy
    assert explicit.clip.bound == 9.0


def test_another_method_keeps_the_step_size_and_nothing_else_of_the_old_ones_keys() -> None:
    recipe = with_(algorithm={"kind": "dp-dinno", "lr": {"start": 0.7, "decay": 0.1}, "rho": 0.4})
    other = resolve(recipe, {"algorithm.kind": "dp-dsgt"}).algorithm
    assert (other.lr.start, other) == (
        0.7,
        algorithms.parse({"kind": "dp-dsgt", "lr": {"start": 0.7, "decay": 0.1}}),
    )
    assert resolve(recipe, {"algorithm.kind": "dp-dsgt", "algorithm.lr": 0.2}).algorithm.lr == 0.2


def test_the_papers_neighbourhood_contains_the_node_itself() -> None:
    assert resolve(BASE, {"algorithm.kind": "dp-dinno"}).algorithm.include_self is False
    paper = resolve(BASE, {"algorithm.kind": "dp-dinno", "mode": "paper"}).algorithm
    assert paper.include_self is True
    off = {"algorithm.kind": "dp-dinno", "mode": "paper", "algorithm.include_self": False}
    assert resolve(BASE, off).algorithm.include_self is False


def test_rate_takes_back_lot() -> None:
    config = resolve(BASE, {"privacy.sampling.rate": 0.5})
    assert (config.privacy.sampling.rate, config.privacy.sampling.lot) == (0.5, None)


def test_override_values_are_toml_or_plain_strings() -> None:
    changes = parse_overrides(["a=1", "b.c=0.5", "d=true", "e=word", 'f="x"', "g=[1, 2]", "h={k = 1}"])
    assert changes == {"a": 1, "b.c": 0.5, "d": True, "e": "word", "f": "x", "g": [1, 2], "h": {"k": 1}}
    with expect_refusal(key="--set", value="nonsense", remedy=True):
        parse_overrides(["nonsense"])


@pytest.mark.parametrize(
    ("key", "value", "right"),
    [
        ("privacy.epsilon", -1, "greater than 0"),
        ("privacy.epsilon", 0, "greater than 0"),
        ("privacy.delta", 1.5, "at most 0.1"),
        ("privacy.delta", 0.49, "at most 0.1"),
        ("privacy.epsilon", 9e11, "at most 1000"),
        ("privacy.epsilon", True, "a number"),
        ("privacy.delta", "1e-3", "a number"),
        ("privacy.noise.multiplier", "3", "a number"),
        ("privacy.runs", "3", "a whole number"),
        ("runtime.timeout", True, "a number"),
        ("nodes", True, "a whole number"),
        ("nodes", 0, "at least 1"),
        ("nodes", "many", "a whole number"),
        ("rounds", "20", "a whole number"),
        ("rounds", 20.0, "a whole number"),
        ("privacy.clip.kind", "soft", "constant"),
        ("privacy.clip.start", -1, "greater than"),
        ("privacy.noise.source", "dice", "seeded"),
        ("algorithm.kind", "sgdp", "dyn-d2p"),
        ("algorithm.lr", 0, "greater than 0"),
        ("mode", "fast", "sound"),
    ],
)
def test_a_mistake_names_the_key_the_value_and_what_is_right(key: str, value: Any, right: str) -> None:
    with pytest.raises(UserError) as caught:
        resolve(BASE, {key: value})
    error = caught.value
    assert (error.key, error.value) == (key, short(value).strip("'"))
    assert right in (error.remedy or "")
    assert "\n" not in str(error)


@pytest.mark.parametrize(
    ("key", "value", "remedy"),
    [
        ("rouds", 5, "rounds"),
        ("privacy.noise.sourse", "seeded", "source"),
        ("privacy.epsilon", [1.0, 2.0], "one per node"),
    ],
)
def test_a_mistake_has_a_remedy(key: str, value: Any, remedy: str) -> None:
    with pytest.raises(UserError) as caught:
        resolve(BASE, {key: value})
    assert caught.value.key == key
    assert remedy in (caught.value.remedy or "")


def test_a_setting_beside_a_new_kind_counts_whatever_the_order() -> None:
    for texts in (["data.kind=mnist", "data.train_rows=500"], ["data.train_rows=500", "data.kind=mnist"]):
        assert resolve(BASE, parse_overrides(texts)).data.train_rows == 500
    with expect_refusal(key="data.train_rows", value="-5", names="1", remedy=True):
        resolve(BASE, parse_overrides(["data.train_rows=-5", "data.kind=mnist"]))


@pytest.mark.parametrize(
    "text", ["mode=[1]", "algorithm.kind=[1]", "nodes=" + "9" * 5000, "nodes=0x" + "f" * 5000, "a=" + "[" * 3000,
             ".".join("a" * 1500) + "=1", "x" * 5000 + "=1", "x" * 5000, "mode={a=" + "{a=" * 500]
)  # fmt: skip
def test_monsters_end_in_one_short_sentence(text: str) -> None:
    with pytest.raises(UserError) as refused:
        resolve(BASE, parse_overrides([text]))
    assert len(str(refused.value)) < 500


def test_a_line_break_in_a_value_sets_no_other_key() -> None:
    assert parse_overrides(["nodes=1\nrounds = 3"]) == {"nodes": "1\nrounds = 3"}


MASKED = {
    "epsilon": 1.0,
    "clip": {"kind": "constant", "bound": 1.0},
    "noise": {"kind": "pairwise", "colluders": 1, "source": "seeded"},
}


@pytest.mark.parametrize("key", ["privacy.noise.colluders", "privacy.noise.family.colluders"])
def test_the_later_of_the_short_and_the_long_key_of_a_noise_wins(key) -> None:
    base = merge(BASE, {"privacy": MASKED})
    assert resolve(base, {key: 3}).privacy.noise.family.colluders == 3
    long = {**MASKED, "noise": {"family": {"kind": "pairwise", "colluders": 2}}}
    assert resolve(merge(BASE, {"privacy": long}), {key: 3}).privacy.noise.family.colluders == 3


@pytest.mark.parametrize("key", ["privacy.noise.kind", "privacy.noise.family.kind"])
def test_another_noise_takes_the_old_ones_options_and_nothing_else(key) -> None:
    noise = resolve(merge(BASE, {"privacy": MASKED}), {key: "gaussian"}).privacy.noise
    assert (noise.family.kind, noise.source) == ("gaussian", "seeded")


def test_what_a_new_kind_of_data_drops_is_said() -> None:
    recipe = {"data": {"kind": "csv", "path": "a.csv", "label": "y", "partition": {"kind": "even"}}}
    said = replaced(recipe, {"data.kind": "mnist", "data.label": "z"})
    assert said is not None
    assert said.startswith("data.kind = 'mnist' replaces the recipe's table [data]; dropped with it: data.path. ")
    assert replaced(recipe, {"data.kind": "csv"}) is None
    assert replaced(recipe, {"data.partition.kind": "dirichlet"}) is None
    assert replaced({"nodes": 3}, {"data.kind": "mnist", "nodes": 4}) is None
    assert replaced({"data": {"kind": "digits"}}, {"data.kind": "mnist"}) is None


def test_a_configuration_of_a_run_directory_names_no_code_once_it_is_tables_again(tmp_path: Path) -> None:
    """gossamer.plan(gossamer.load(RUN).config) runs nothing that RUN names."""
    (tmp_path / "config.toml").write_text(
        tomli_w.dumps(resolve(with_(model="net.py:make")).model_dump(exclude_none=True))
    )
    config = stored(tmp_path / "config.toml")
    assert isinstance(config.model, Withheld)
    assert resolve(named(config)[1]).model == Own()
    mine = str(Path.cwd() / "mine.py:make")
    assert resolve(named(config)[1], {"model.path": "mine.py:make"}).model == Own(path=mine)
