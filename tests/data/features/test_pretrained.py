"""`pretrained`: each image by itself, through weights that are checked and named beside every result."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from tests.support.features import images
from tests.support.refusals import expect_refusal
from tests.support.weights import as_file, published, random_weights
from torch.nn import functional

from gossamer.config import recipes
from gossamer.config.layers import resolve
from gossamer.data.dataset import Dataset
from gossamer.data.features.pipeline import applied, shape_after, statements, transformed
from gossamer.data.features.pretrained import EfficientNetLite, Pretrained
from gossamer.data.features.steps import Apply, named_steps, set_up
from gossamer.data.origins import WEIGHTS, Weights
from gossamer.training.plan import Plan

SMALL = {"kind": "pretrained", "weights": "efficientnet-lite0", "side": 32}


@pytest.fixture
def at_hand(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, torch.Tensor]:
    """Random weights in the cache, in place of the published ones."""
    made = random_weights()
    entry = published(monkeypatch, as_file(made))
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / entry.file).write_bytes(as_file(made))
    return made


def step(channels: int = 3, **options: object) -> Apply:
    kind = Pretrained(weights="efficientnet-lite0", side=32, **options)  # type: ignore[arg-type]
    return kind.build((channels, 12, 12)).apply


@torch.no_grad()
def test_pixels_are_enlarged_and_scaled_as_the_weights_expect(at_hand: dict[str, torch.Tensor]) -> None:
    x = torch.from_numpy(images(3, 3))
    large = functional.interpolate(x, (32, 32), mode="bilinear", align_corners=False)
    network = EfficientNetLite(at_hand, width=1.0, depth=1.0)
    expected = network((255 * large - 127) / 128)
    torch.testing.assert_close(step()(x), expected, rtol=1e-3, atol=1e-4)
    both = (expected + network((255 * large.flip(3) - 127) / 128)) / 2
    torch.testing.assert_close(step(mirror=True)(x), both, rtol=1e-3, atol=1e-4)
    with_stages = network((255 * large - 127) / 128, 2)
    torch.testing.assert_close(step(stages=2)(x), with_stages, rtol=1e-3, atol=1e-4)


@torch.no_grad()
def test_a_record_has_the_same_features_alone_and_among_any_others(at_hand: object) -> None:
    """The others here are as odd as they come: if anything of them got across, it would show."""
    made, x = step(stages=7), torch.from_numpy(images(11, 3))
    alone = torch.cat([made(record[None]) for record in x])
    torch.testing.assert_close(made(x), alone, rtol=1e-4, atol=1e-5)
    wild = x.clone()
    wild[::2] = torch.tensor([1e30, -1e30, float("nan")])[:, None, None]
    torch.testing.assert_close(made(wild)[1::2], alone[1::2], rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_grey_images_are_taken_for_three_equal_channels(at_hand: object) -> None:
    grey = torch.from_numpy(images(2, 1))
    torch.testing.assert_close(step(1)(grey), step(3)(grey.repeat(1, 3, 1, 1)))


def dataset(x: np.ndarray) -> Dataset:
    y = np.zeros(len(x), np.int64)
    return Dataset(
        name="toy", x_train=x, y_train=y, x_test=x[:2], y_test=y[:2], classes=2, public_test=True, owner=None,
        provenance={},
    )  # fmt: skip


def none(_kind: str, _options: dict[str, object]) -> Dataset:
    raise AssertionError("no public set is needed")


def test_what_was_computed_is_read_from_the_cache_without_weights(
    at_hand: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, transform = dataset(images(9, 3)), [{"kind": "beside", "branches": [[SMALL], ["unit-norm"]]}]
    first = transformed(data, transform, none, keep=True)
    assert first.x_train.shape == (9, 1280 + 3 * 12 * 12)
    assert np.allclose(applied(data.x_train, transform, none), first.x_train, atol=1e-5)

    def gone(*_: object, **__: object) -> object:
        raise AssertionError("the weights were asked for again")

    monkeypatch.setattr(Weights, "find", gone)
    assert np.array_equal(transformed(data, transform, none, keep=True).x_train, first.x_train)
    with pytest.raises(AssertionError, match="asked for again"):
        transformed(dataset(images(9, 3, seed=5)), transform, none, keep=True)


def test_weights_may_lie_in_the_data_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    content = as_file(random_weights())
    (tmp_path / published(monkeypatch, content).file).write_bytes(content)
    found = transformed(dataset(images(2, 3)), [SMALL], none, keep=False, data_dir=tmp_path)
    assert found.x_train.shape == (2, 1280)


def test_the_cache_key_has_the_checksum(monkeypatch: pytest.MonkeyPatch) -> None:
    (pretrained,) = named_steps([SMALL])
    before = pretrained.key()
    published(monkeypatch, b"other weights")
    assert pretrained.key() != before


def test_shapes_are_known_without_weights() -> None:
    assert shape_after([SMALL], (3, 32, 32)) == (1280,)
    assert shape_after([{**SMALL, "stages": 2}], (3, 32, 32)) == (1280 + 192 + 320,)
    wider = {**SMALL, "weights": "efficientnet-lite2", "stages": 3}
    assert shape_after([wider], (3, 32, 32)) == (1280 + 120 + 208 + 352,)


def test_the_statement_stands_beside_every_result() -> None:
    inside = [{"kind": "beside", "branches": [["unit-norm"], [SMALL]]}, "unit-norm"]
    assert statements([SMALL]) == statements(inside) == [WEIGHTS["efficientnet-lite0"].statement()]
    assert statements(["unit-norm"]) == []
    config = resolve(recipes.read("frontier/cifar10-pixels"), {"data.transform": [SMALL, "unit-norm"]})
    assert statements([SMALL])[0] in Plan.of(config).privacy.notes


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"weights": "efficientnet-lite9"}, "weights efficientnet-lite9"),
        ({"side": 8}, "data.transform.side 8 32"),
        ({"stages": 8}, "data.transform.stages 8 7"),
        ({"stages": -1}, "data.transform.stages -1 0"),
        ({"weights": 3}, "data.transform.weights 3"),
        ({"public": "mnist"}, "data.transform.public key"),
    ],
)
def test_refusals(options: dict[str, object], said: str) -> None:
    with expect_refusal(names=said):
        set_up(named_steps([{"kind": "pretrained", **options}]), (3, 32, 32))


@pytest.mark.parametrize("shape", [(7,), (2, 32, 32)])
def test_records_that_are_no_pictures(shape: tuple[int, ...]) -> None:
    with expect_refusal(key="data.transform", names="pretrained"):
        set_up(named_steps(["pretrained"]), shape)


@pytest.mark.data
@torch.no_grad()
def test_real_weights_tell_cats_from_ships() -> None:
    """Nearest class mean of 40 images each, on 40 others; at random it would be right in half of the cases."""
    from gossamer.data.load import load

    data = load("cifar10-part")
    made = Pretrained(weights="efficientnet-lite0", side=96).build((3, 32, 32)).apply
    parts = [made(torch.from_numpy(data.x_train[data.y_train == label][:80])) for label in (3, 8)]
    parts = [functional.normalize(part) for part in parts]
    means = torch.stack([part[:40].mean(0) for part in parts])
    right = [(torch.cdist(part[40:], means).argmin(1) == k).float().mean() for k, part in enumerate(parts)]
    assert min(right) > 0.85
