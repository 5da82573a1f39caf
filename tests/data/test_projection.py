"""Principal components against scikit-learn and by construction."""

import numpy as np
import pytest
from sklearn.decomposition import PCA

from gossamer.data.arrays import fit_components, project


def records(rows, seed=0):
    rng = np.random.default_rng(seed)
    return (rng.standard_normal((rows, 6)) * [5, 3, 2, 1, 0.5, 0.1] + 7).astype(np.float32)


@pytest.mark.parametrize("rows", [40, 25_000])  # in one block, and in several
def test_components_are_those_of_scikit_learn(rows):
    x = records(rows)
    mean, basis = fit_components(x, 3)
    theirs = PCA(3, svd_solver="full").fit(x.astype(np.float64))
    np.testing.assert_allclose(mean, theirs.mean_, rtol=1e-5)
    np.testing.assert_allclose(np.abs(np.sum(basis * theirs.components_, axis=1)), 1, atol=1e-4)
    np.testing.assert_allclose(basis @ basis.T, np.eye(3), atol=1e-5)
    np.testing.assert_allclose(
        np.abs(project(x[:5], mean, basis)), np.abs(theirs.transform(x[:5])), rtol=1e-2, atol=1e-2
    )


def test_the_largest_entry_of_a_direction_is_positive_so_signs_are_the_same_everywhere():
    for seed in range(4):
        _, basis = fit_components(records(60, seed), 6)
        assert (basis[np.arange(6), np.abs(basis).argmax(1)] > 0).all()


def test_images_are_flattened_and_all_components_keep_distances():
    x = records(30).reshape(30, 1, 2, 3)
    mean, basis = fit_components(x, 6)
    found = project(x, mean, basis)
    assert found.dtype == np.float32
    flat = x.reshape(30, -1)
    np.testing.assert_allclose(
        np.linalg.norm(found[0] - found[1]), np.linalg.norm(flat[0] - flat[1]), rtol=1e-4
    )
