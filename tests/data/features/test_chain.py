"""Lists of steps: what they make of a shape, what is refused, and lists beside each other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tests.support.features import SMALL_PATCHES, features, images, made
from tests.support.refusals import expect_refusal

from gossamer.data import load as loading
from gossamer.data.features.pipeline import every, shape_after, to_fit, transformed
from gossamer.data.features.steps import named_steps, set_up, through, widest
from gossamer.data.load import load


def test_the_shape_is_known_without_reading_records(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = ["scattering", "group-norm", {"kind": "projection", "public": "mnist", "dimensions": 300}]
    monkeypatch.setattr(loading, "load", lambda *_, **__: pytest.fail("read"))
    assert shape_after(steps[:1], (1, 28, 28)) == (81, 7, 7)
    assert shape_after(steps, (1, 28, 28)) == (300,)
    assert shape_after([], (3, 4)) == (3, 4)


WRONG: list[tuple[Any, str]] = [
    ("scattering", "data.transform scattering"),
    (["wavelets"], "wavelets"),
    ([{"kind": "unit-norm", "p": 2}], "data.transform.p key"),
    ([{"kind": "log", "floor": 0.0}], "0.0"),
    ([{"kind": "group-norm", "groups": 7}], "group-norm.groups 7"),
    ([{"kind": "group-norm", "groups": 0}], "data.transform.groups 0 1"),
    ([{"kind": "scattering", "scales": 9}], "data.transform.scales 9 5"),
    ([{"kind": "scattering", "scales": 3}], "data.transform 8"),
    (["unit-norm", "scattering", "scattering"], "data.transform 4"),
    ([{"kind": "random-fourier", "dimensions": 0}], "data.transform.dimensions 0 1"),
    ([{"kind": "random-fourier", "width": 0.0}], "0.0"),
    ([{"kind": "projection", "dimensions": 3}], "data.transform.public missing"),
    ([{"kind": "projection", "public": "digits", "dimensions": 3}], "public digits"),
    ([{"kind": "projection", "public": "nowhere", "dimensions": 3}], "nowhere"),
    ([{"kind": "projection", "public": 3, "dimensions": 3}], "data.transform.public 3"),
    ([{"kind": "projection", "public": "digits", "dimensions": 65}], "dimensions 65 64"),
    (
        [{"kind": "projection", "public": "digits", "dimensions": 3, "whitening": 2.0}],
        "data.transform.whitening 2.0 1",
    ),
    ([{"kind": "standardise", "public": "digits", "rows": 1}], "data.transform.rows 1 2"),
    ([{"kind": "random-fourier", "dimensions": 4}, "scattering"], "data.transform images"),
]


@pytest.mark.parametrize(("transform", "words"), WRONG)
def test_mistakes_are_one_sentence(transform: Any, words: str) -> None:
    with expect_refusal(names=words) as caught:
        load("digits", transform=transform)
    assert "\n" not in str(caught.value)


def test_beside_is_each_branch_by_itself_one_after_the_other() -> None:
    x, public = images(), images(60, seed=1)
    branches: list[list[Any]] = [["scattering", "unit-norm"], [SMALL_PATCHES], []]
    together = features(x, {"kind": "beside", "branches": branches}, public=public)
    alone = [features(x, *branch, public=public).reshape(20, -1) for branch in branches]
    assert np.allclose(together, np.concatenate(alone, 1), atol=1e-6)


def test_a_step_after_beside_is_fitted_on_all_of_it() -> None:
    x, public = images(), images(80, seed=1)
    beside = {"kind": "beside", "branches": [[SMALL_PATCHES, "unit-norm"], ["unit-norm"]]}
    project = {"kind": "projection", "public": "p", "dimensions": 5, "whitening": 0.0}
    ours = features(x, beside, project, public=public)
    seen = made(np.concatenate([x, public[:40]]))  # the public training half is this one's test half
    theirs = transformed(seen, [beside], lambda *_: made(public), keep=False).x_test.astype(np.float64)
    basis = np.linalg.eigh(np.cov(theirs.T, bias=True))[1][:, ::-1][:, :5]
    expected = (features(x, beside, public=public) - theirs.mean(0)) @ basis
    assert np.allclose(np.abs(ours), np.abs(expected), atol=1e-4)


def test_blocks_count_what_is_wide_inside_a_step() -> None:
    step = set_up(named_steps([{"kind": "beside", "branches": [[SMALL_PATCHES], ["unit-norm"]]}]), (1, 12, 12))[0]
    assert widest(step) == 14 * 9 * 9


def test_the_key_of_a_step_has_all_its_options() -> None:
    (scattering,) = named_steps(["scattering"])
    assert scattering.key() == {"kind": "scattering", "scales": 2, "angles": 8}
    (projection,) = named_steps([{"kind": "projection", "public": "p", "dimensions": 3}])
    assert projection.key()["version"] == 2  # what is kept of the first version is not taken for this one's
    (beside,) = named_steps([{"kind": "beside", "branches": [["scattering"]]}])
    assert beside.key()["branches"][0][0]["angles"] == 8


def test_what_is_costly_is_so_inside_a_branch_too() -> None:
    def costly(*steps: Any) -> bool:
        return any(kind.costly for kind in every(named_steps(list(steps))))

    assert costly("scattering")
    assert not costly("log")
    assert costly({"kind": "beside", "branches": [["log"], ["log", "scattering"]]})
    assert not costly({"kind": "beside", "branches": [["log"], []]})


def test_steps_are_fitted_in_order_each_behind_those_before_it() -> None:
    inner = {"kind": "standardise", "public": "p"}
    beside = {"kind": "beside", "branches": [["log", inner], ["unit-norm"]]}
    steps = set_up(named_steps(["log", inner, beside, inner]), (6,))
    order = [(step.of.kind, [other.of.kind for other in before]) for step, before in to_fit(steps)]
    assert order == [
        ("standardise", ["log"]),
        ("standardise", ["log", "standardise", "log"]),
        ("standardise", ["log", "standardise", "beside"]),
    ]


def test_a_chain_is_its_steps_one_after_the_other() -> None:
    steps = set_up(named_steps(["log", "unit-norm"]), (3,))
    x = torch.tensor([[1.0, 2.0, 3.0]])
    expected = torch.log(x + 1e-3)
    torch.testing.assert_close(through(steps, x), expected / expected.norm())
    assert through([], x) is x
