"""Events on a line of the ledger, releases by the name of their kind, and how they are counted."""

import json
import math
from dataclasses import fields

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.balls import one_pass
from tests.support.refusals import expect_refusal
from tests.support.releases import gaussian

from gossamer.accounting.releases import (
    ADJACENCIES,
    KINDS,
    SAMPLINGS,
    Event,
    Gaussian,
    TruncatedGaussian,
    Unnoised,
    collate,
    of_several_runs,
    release,
)

VALUES = {
    "sigma": st.floats(0, 1e300),
    "sensitivity": st.floats(1e-300, math.inf),
    "sampling": st.sampled_from(SAMPLINGS),
    "rate": st.floats(1e-12, 1.0),
    "adjacency": st.sampled_from(ADJACENCIES),
    "bound": st.floats(1e-300, math.inf),
    "shape": st.floats(0.1, 10.0),
    "dimensions": st.integers(1, 10**9),
    "nodes": st.just(1000),
    "colluders": st.integers(0, 999),
    "ratio": st.floats(0.0, 1e6),
    "secrets": st.text("0123456789abcdef", min_size=32, max_size=32),
    "pass_number": st.none() | st.integers(0, 10**6),
    "lot_number": st.none() | st.integers(0, 10**6),
    "clipped": st.none(),
}
OF_LOTS = {"sampling": st.sampled_from(("poisson", "fixed-size", "full")), "clipped": st.just("lot")}
releases = st.one_of(
    [
        st.builds(cls, **{field.name: values[field.name] for field in fields(cls)})  # type: ignore[arg-type]
        for cls in KINDS.values()
        for values in (VALUES, {**VALUES, **OF_LOTS})
    ]
)
COMMON = {"sensitivity": 1.0, "sampling": "full", "rate": 1.0, "adjacency": "add-remove"}


@settings(deadline=None, max_examples=200)
@given(st.integers(0, 10**9), releases)
def test_an_event_survives_json_exactly(step, one):
    event = Event(step, one)
    text = event.to_json()
    data = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert data["kind"] == one.kind
    assert Event.from_json(text) == event
    with pytest.raises(ValueError, match="has no 'step'"):
        Event.from_json({**data, "step": 0.5})


def test_a_line_of_the_ledger():
    one = TruncatedGaussian(
        sigma=1.5,
        bound=6.0,
        dimensions=10,
        sensitivity=math.inf,
        sampling="one-pass",
        rate=0.1,
        adjacency="replace-one",
        pass_number=2,
    )
    assert Event(3, one).to_json() == (
        '{"draw":3,"kind":"truncated-gaussian","sigma":1.5,"sensitivity":"inf","sampling":"one-pass","rate":0.1,'
        '"adjacency":"replace-one","pass":2,"dimensions":10,"bound":6.0}'
    )
    unnoised = Unnoised(**COMMON)
    assert "sigma" not in Event(0, unnoised).to_json()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("kind", "magic"),
        ("sampling", "shuffled"),
        ("adjacency", "zero-out"),
        ("rate", 0.0),
        ("rate", 1.5),
        ("rate", math.nan),
        ("sigma", -1.0),
        ("sigma", math.inf),
        ("sensitivity", 0.0),
        ("colour", 1.0),
        ("bound", 1.0),
    ],
)
def test_a_wrong_release_is_refused_by_name(key, value):
    values = {"kind": "gaussian", "sigma": 1.0, **COMMON, key: value}
    with expect_refusal(key):
        release(values.pop("kind"), **values)


def test_a_release_needs_its_constants():
    with expect_refusal(key="event", names="truncated-laplace bound"):
        release("truncated-laplace", sigma=1.0, **COMMON)
    with expect_refusal(key="event", names="generalised-gaussian shape"):
        release("generalised-gaussian", sigma=1.0, **COMMON)


def test_the_name_of_a_kind_gives_its_class():
    assert release("gaussian", sigma=2.0, **COMMON) == Gaussian(sigma=2.0, **COMMON)
    assert release("none", sigma=0.0, **COMMON) == Unnoised(**COMMON)
    assert all(cls.kind == kind for kind, cls in KINDS.items())


def test_collate_counts_equal_releases_whatever_their_step():
    one, other = gaussian(1.0), gaussian(2.0)
    assert collate([Event(0, one), one, Event(2, other), Event(3, gaussian(1.0))]) == [(one, 3), (other, 1)]


def test_passes_of_several_runs_are_numbered_apart():
    run = [Event(k, gaussian(1.0, sampling="one-pass", pass_number=k // 2)) for k in range(4)]
    bare = [Event(0, gaussian(1.0, sampling="one-pass")), Event(1, gaussian(1.0))]
    found = of_several_runs([run, bare, run])
    assert [event.release.pass_number for event in found] == [0, 0, 1, 1, 2, None, 3, 3, 4, 4]
    assert [event.draw for event in found] == [0, 1, 2, 3, 0, 1, 0, 1, 2, 3]
    drawn = [Event(k, one) for number in (0, 1) for k, one in enumerate(one_pass(3, number=number))]
    lost = [Event(0, one_pass(3, number=None)[0])]
    numbers = [event.release.pass_number for event in of_several_runs([drawn, lost, drawn])]
    assert numbers == [0, 0, 0, 1, 1, 1, None, 3, 3, 3, 4, 4, 4]  # a number that is missing is not made up


def test_the_lot_of_a_pass_is_on_the_line_and_only_where_there_is_one():
    lot = Event(7, one_pass(5, number=1)[2])
    assert lot.to_json().endswith('"adjacency":"add-remove","pass":1,"lot":2}')
    assert Event.from_json(lot.to_json()) == lot
    assert '"lot"' not in Event(0, gaussian(1.0, sampling="one-pass", pass_number=3)).to_json()
