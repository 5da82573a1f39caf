"""A record's part is its own affair: nobody else's coming or going changes it."""

import numpy as np

from gossamer.data.persons import held_out_rows

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(4000, 3)).astype(np.float32), RNG.integers(0, 2, 4000)
PERSON = RNG.integers(0, 2**62, 800).repeat(5)


def parts(x, y, person=None, part=0.25, seed=0, by_person=False):
    return held_out_rows(x, y, person if by_person else None, np.arange(len(y)), part, seed)


def test_about_the_part_is_kept_out_and_follows_the_seed():
    found = parts(X, Y)
    assert abs(found.mean() - 0.25) < 5 * np.sqrt(0.25 * 0.75 / 4000)
    assert not np.array_equal(found, parts(X, Y, seed=1))
    assert parts(X[:0], Y[:0]).tolist() == []


def test_adding_removing_and_reordering_changes_nobody_elses_part():
    whole = parts(X, Y)
    left = np.delete(np.arange(4000), 17)
    assert np.array_equal(parts(X[left], Y[left]), whole[left])
    order = RNG.permutation(4000)
    assert np.array_equal(parts(X[order], Y[order]), whole[order])


def test_all_of_a_persons_records_are_in_one_part_whoever_else_is_there():
    whole = parts(X, Y, PERSON, by_person=True)
    assert np.array_equal(whole.reshape(800, 5).min(1), whole.reshape(800, 5).max(1))
    assert abs(whole.mean() - 0.25) < 5 * np.sqrt(0.25 * 0.75 / 800)
    some = np.flatnonzero(PERSON[0] != PERSON)
    assert np.array_equal(parts(X[some], Y[some], PERSON[some], by_person=True), whole[some])
    other = parts(X + 1, Y, PERSON, by_person=True)  # what the records hold is nothing to it
    assert np.array_equal(other, whole)
