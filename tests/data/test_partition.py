from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.refusals import expect_refusal

from gossamer.data.partition import Partition, partitions, split
from gossamer.options.registry import options_of

SETTINGS = settings(deadline=None, max_examples=60)
labels_strategy = st.lists(st.integers(0, 9), min_size=12, max_size=200).map(np.array)
disjoint_kinds = st.sampled_from(
    [
        ("even", {}),
        ("label-split", {"t": 0.0}),
        ("label-split", {"t": 0.3}),
        ("dirichlet", {"alpha": 0.05}),
        ("dirichlet", {"alpha": 10.0, "min_size": 2}),
        ("shards", {}),
        ("shards", {"shards_per_node": 1}),
    ]
)


def draw(kind, labels, nodes, seed=0, owner=None, **options):
    part = partitions.parse({"kind": kind, **options})
    return split(part, labels=labels, nodes=nodes, rng=np.random.default_rng(seed), owner=owner)


@SETTINGS
@given(labels_strategy, st.integers(1, 6), st.integers(0, 2**32), disjoint_kinds)
def test_disjoint_kinds_use_every_record_once(labels, nodes, seed, choice):
    kind, options = choice
    parts = draw(kind, labels, nodes, seed, **options)
    assert len(parts) == nodes
    assert all(len(part) >= options.get("min_size", 1) for part in parts)
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(labels)))
    assert all(part.dtype == np.int64 and np.all(np.diff(part) > 0) for part in parts)


@SETTINGS
@given(labels_strategy, st.integers(1, 6), st.integers(0, 2**32), disjoint_kinds)
def test_the_generator_decides_everything(labels, nodes, seed, choice):
    kind, options = choice
    first, second = (draw(kind, labels, nodes, seed, **options) for _ in range(2))
    assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))


def test_another_seed_gives_another_partition():
    labels = np.arange(200) % 10
    for kind, options in [
        ("even", {}),
        ("label-split", {"t": 0.5}),
        ("dirichlet", {"alpha": 1.0}),
        ("shards", {}),
    ]:
        first, second = draw(kind, labels, 4, 0, **options), draw(kind, labels, 4, 1, **options)
        assert not all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))


@SETTINGS
@given(st.integers(5, 300), st.integers(1, 5))
def test_even_sizes_differ_by_at_most_one(records, nodes):
    sizes = [len(part) for part in draw("even", np.zeros(records, int), nodes)]
    assert max(sizes) - min(sizes) <= 1


@SETTINGS
@given(labels_strategy, st.integers(1, 12), st.integers(0, 2**32))
def test_label_split_is_even_in_every_class_at_0(labels, nodes, seed):
    parts = draw("label-split", labels, nodes, seed, t=0)
    counts = np.array([np.bincount(labels[part], minlength=10) for part in parts])
    assert (np.ptp(counts, axis=0) <= 1).all()
    assert np.ptp(counts.sum(axis=1)) <= 1


@pytest.mark.parametrize("nodes", [10, 5, 3])
def test_label_split_puts_each_class_on_its_home_node_at_1(nodes):
    labels = np.random.default_rng(5).permutation(np.repeat(np.arange(10), 7))
    for node, part in enumerate(draw("label-split", labels, nodes, t=1)):
        assert set(labels[part]) == {c for c in range(10) if c % nodes == node}


@pytest.mark.parametrize("t", [0.0, 0.1, 0.25, 0.5, 0.75, 1.0])
@pytest.mark.parametrize(("nodes", "classes"), [(10, 10), (4, 10), (20, 10)])
def test_label_split_follows_the_matrix_of_the_paper(t, nodes, classes):
    per_class = 1000
    labels = np.repeat(np.arange(classes), per_class)
    # eq. (8) written out entry by entry
    matrix = np.array([[(1 - t) / nodes for _ in range(classes)] for _ in range(nodes)])
    for j in range(classes):
        home = j % nodes
        matrix[home, j] = 1 - sum(matrix[k, j] for k in range(nodes) if k != home)
    if t == 1.0 and nodes > classes:
        with expect_refusal(key="data.partition.t", value="1", names="10"):
            draw("label-split", labels, nodes, t=t)
        return
    parts = draw("label-split", labels, nodes, t=t)
    counts = np.array([np.bincount(labels[part], minlength=classes) for part in parts])
    assert np.abs(counts - matrix * per_class).max() <= 1


def test_dirichlet_proportions_have_the_moments_of_the_law():
    nodes, alpha = 4, 0.7
    labels = np.zeros(2000, int)
    shares = np.array(
        [[len(p) / 2000 for p in draw("dirichlet", labels, nodes, seed, alpha=alpha)] for seed in range(400)]
    )
    mean, variance = 1 / nodes, (1 / nodes) * (1 - 1 / nodes) / (nodes * alpha + 1)
    assert np.allclose(shares.mean(axis=0), mean, atol=4 * (variance / 400) ** 0.5)
    assert shares.var() == pytest.approx(variance, rel=0.12)


def test_dirichlet_goes_from_one_holder_to_even():
    labels = np.repeat(np.arange(10), 500)
    concentrated = draw("dirichlet", labels, 5, alpha=1e-6)
    even = draw("dirichlet", labels, 5, alpha=1e6)
    largest = [
        np.array([np.bincount(labels[p], minlength=10) for p in parts]).max(axis=0) for parts in (concentrated, even)
    ]
    assert (largest[0] > 490).all()
    assert (largest[1] < 110).all()


def test_dirichlet_fills_up_to_min_size():
    parts = draw("dirichlet", np.zeros(100, int), 10, alpha=1e-3, min_size=10)
    assert [len(part) for part in parts] == [10] * 10


@pytest.mark.parametrize("per_node", [1, 2, 3])
def test_shards_show_a_node_few_classes(per_node):
    labels = np.random.default_rng(1).permutation(np.repeat(np.arange(10), 60))
    parts = draw("shards", labels, 10, shards_per_node=per_node)
    # 10 * per_node equal pieces of 10 equal classes: no piece spans two classes
    assert all(len(set(labels[part])) <= per_node for part in parts)
    assert {len(part) for part in parts} == {60}


def test_owner_follows_the_owners_in_sorted_order():
    owner = np.array([7, 2, 7, 5, 2])
    parts = draw("owner", np.zeros(5, int), 3, owner=owner)
    assert [part.tolist() for part in parts] == [[1, 4], [3], [0, 2]]


def test_owner_names_the_right_number_of_nodes():
    with expect_refusal(key="nodes", value="2", names="3"):
        draw("owner", np.zeros(5, int), 2, owner=np.array([7, 2, 7, 5, 2]))
    with expect_refusal("data.partition.kind", "owner", "data.owner"):
        draw("owner", np.zeros(5, int), 2)


@SETTINGS
@given(st.integers(1, 50), st.integers(1, 8), st.data())
def test_sampled_draws_without_replacement_within_a_node(records, nodes, data):
    sizes = data.draw(
        st.one_of(st.integers(1, records), st.lists(st.integers(1, records), min_size=nodes, max_size=nodes))
    )
    parts = draw("sampled", np.zeros(records, int), nodes, size=sizes)
    assert [len(p) for p in parts] == (sizes if isinstance(sizes, list) else [sizes] * nodes)
    assert all(len(set(p.tolist())) == len(p) and p.max() < records for p in parts)


def test_sampled_nodes_draw_independently():
    parts = draw("sampled", np.zeros(1000, int), 2, size=500)
    overlap = len(np.intersect1d(*parts))  # hypergeometric: mean 250, standard deviation 7.9
    assert 210 < overlap < 290


@SETTINGS
@given(st.integers(20, 60), st.integers(2, 8), st.integers(1, 8), st.integers(0, 99))
def test_no_record_lies_on_more_nodes_than_allowed(records, nodes, copies, seed):
    size = records * copies // (2 * nodes)
    if not 1 <= size <= records // 2:
        return
    parts = draw("sampled", np.zeros(records, int), nodes, seed, size=size, copies=copies)
    assert [len(set(part.tolist())) for part in parts] == [size] * nodes
    assert np.bincount(np.concatenate(parts)).max() <= copies


def test_one_copy_each_is_a_deal_and_too_few_are_refused():
    parts = draw("sampled", np.zeros(30, int), 3, size=10, copies=1)
    assert sorted(np.concatenate(parts).tolist()) == list(range(30))
    with expect_refusal(key="data.partition.copies", value="1"):
        draw("sampled", np.zeros(30, int), 3, size=11, copies=1)


def test_a_partition_that_breaks_its_word_is_refused():
    @dataclass(frozen=True, kw_only=True)
    class Careless(Partition):
        kind = "careless"

        def split(self, labels, nodes, rng, owner):
            return [np.array([0, 1])] * nodes

    with expect_refusal(key="data.partition.kind", value="careless", names="1"):
        split(Careless(), labels=np.zeros(4, int), nodes=2, rng=np.random.default_rng(0))


def test_sizes_are_kept_and_disjoint():
    parts = draw("sizes", np.zeros(20, int), 3, sizes=[1, 5, 11])
    assert [len(part) for part in parts] == [1, 5, 11]
    assert len(np.unique(np.concatenate(parts))) == 17


@pytest.mark.parametrize(
    ("kind", "nodes", "options", "message"),
    [
        ("odd", 2, {}, "data.partition.kind odd even"),
        ("even", 0, {}, "nodes 0"),
        ("even", 31, {}, "nodes 31 30"),
        ("even", 3, {"t": 0.5}, "data.partition.t kind even"),
        ("label-split", 3, {}, "data.partition.t missing"),
        ("label-split", 3, {"t": 1.5}, "data.partition.t 1.5 1"),
        ("label-split", 3, {"t": float("nan")}, "data.partition.t nan"),
        ("label-split", 3, {"t": "all"}, "data.partition.t all"),
        ("dirichlet", 3, {"alpha": 0}, "data.partition.alpha 0"),
        ("dirichlet", 3, {"alpha": float("inf")}, "data.partition.alpha inf"),
        (
            "dirichlet",
            3,
            {"alpha": 1.0, "min_size": 11},
            "data.partition.min_size 11 1 10",
        ),
        ("shards", 3, {"shards_per_node": 11}, "data.partition.shards_per_node 11"),
        ("sampled", 3, {"size": 31}, "data.partition.size 31 1 30"),
        ("sampled", 3, {"size": [1, 2]}, "3 sizes"),
        ("sizes", 3, {"sizes": [10, 10]}, "3 sizes"),
        ("sizes", 3, {"sizes": [10, 10, 11]}, "data.partition.sizes 31"),
        ("sizes", 3, {"sizes": [10, 0, 11]}, "data.partition.sizes[1] 0"),
    ],
)
def test_mistakes_end_in_one_sentence(kind, nodes, options, message):
    with expect_refusal(names=message):
        draw(kind, np.arange(30) % 3, nodes, **options)


@pytest.mark.parametrize("options", [("label-split", {"t": 0.5}), ("dirichlet", {"alpha": 1.0})])
def test_regression_targets_cannot_be_split_by_class(options):
    with expect_refusal(key="data.partition.kind", names="class"):
        draw(options[0], np.linspace(0, 1, 30), 3, **options[1])


def test_no_records_is_refused():
    with expect_refusal(key="nodes", value="2", names="0"):
        draw("sampled", np.zeros(0, int), 2, size=1)


def test_every_option_has_a_meaning():
    for kind in partitions.kinds.values():
        assert kind.__doc__
        assert all(option.meaning for option in options_of(kind)), kind
