from __future__ import annotations

from tests.support.refusals import expect_refusal

from gossamer.config import recipes
from gossamer.config.checks import check
from gossamer.config.layers import resolve

FULL = {"privacy.sampling": {"kind": "full"}}


def test_records_go_with_everything_and_nodes_with_full_lots() -> None:
    check(
        resolve(
            recipes.read("quickstart"),
            {"privacy.centre": 0.1, "privacy.clip": {"kind": "constant", "bound": 1.0}},
        )
    )
    check(resolve(recipes.read("quickstart"), {"privacy.unit": "node", **FULL}))
    with expect_refusal(key="privacy.unit", value="node", names="full poisson", remedy=True):
        check(resolve(recipes.read("quickstart"), {"privacy.unit": "node"}))


def test_a_unit_is_a_word_or_a_table() -> None:
    unit = resolve(recipes.read("quickstart"), {"privacy.unit.column": "patient"}).privacy
    assert unit.protects.words(unit.max_sites) == "one person (column patient) at one node"
    for wrong, names in (
        ("person", "privacy.unit person"),
        ({"max_records": 3}, "privacy.unit.column"),
        ({"column": "a", "max_sites": 0}, "privacy.unit.max_sites 0"),
        ({"column": ""}, "privacy.unit.column"),
    ):
        with expect_refusal(names=names):
            resolve(recipes.read("quickstart"), {"privacy.unit": wrong})


def test_without_noise_nothing_is_promised_and_nothing_refused() -> None:
    asked = {
        "privacy.unit": {"column": "p"},
        "baseline": "non-private",
        "data.partition": {"kind": "sampled", "size": 9},
    }
    from gossamer.config.checks import effective

    check(effective(resolve(recipes.read("quickstart"), asked)))
