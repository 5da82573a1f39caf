"""A card says what a reader must know, and others' words in it are words."""

from __future__ import annotations

from typing import Any

from tests.support.certificates import certificate
from tests.support.trained import description

from gossamer.data.inputs import Inputs
from gossamer.results.export import WITHHELD, card, markdown, meaning

MANIFEST: dict[str, Any] = {
    "name": "study",
    "started": "2026-01-02T03:04:05Z",
    "data": {"source": "own file"},
}


def made(said: Any = None, kind: str = "onnx", node: Any = "average", **changes: Any) -> dict[str, Any]:
    return card(
        said or description(),
        certificate(**changes),
        MANIFEST,
        rounds=40,
        node=node,
        file="model.onnx",
        kind=kind,
    )


def test_no_epsilon_without_delta_adjacency_unit_and_observer() -> None:
    found, text = made(), markdown(made())
    assert found["privacy"]["epsilon_proven"] == 2.5
    assert "- Proven: ε = 2.5 at δ = 1e-05" in text
    for words in ("Adjacency: add-remove", "Unit: one record of one node", "Observer: everyone", "- groups"):
        assert words in text
    for words in (
        "dyn-d2p, sound mode, 3 nodes, 40 rounds",
        "run 0000000000000000, gossamer 1.2.3",
        "2026-01-02",
    ):
        assert words in text
    assert found["data"]["sha256"] == WITHHELD  # of private records
    assert "classification" in text
    assert "the mean of the models of all 3 nodes" in text
    assert "node 2 of 3" in markdown(made(node=2))


def test_what_is_not_proven_and_what_is_seeded_stand_out() -> None:
    text = markdown(made(epsilon_proven=None, not_proven_because="no clip", stamp="seeded noise: no privacy"))
    assert "ε = ∞" in text
    assert "Not proven because: no clip" in text
    assert "**SEEDED NOISE: NO PRIVACY.**" in text


def test_what_the_proof_rests_on_besides_goes_with_the_model() -> None:
    """That something was read off the records, or that a clip is somebody's own, counts for who gets the model."""
    note = "The clip 'mine' comes from the script itself: the proof rests on the bound that it states."
    found = made(notes=[note], claim_flags=[])
    assert found["privacy"]["notes"] == [note]
    assert f"About this run:\n\n- {note}\n" in markdown(found)


def test_names_of_columns_and_classes_are_not_obeyed() -> None:
    evil = "<script>alert(1)</script>\n# Heading"
    said = description(labels=(evil, "b"), inputs=Inputs(shape=(2,), columns=(evil, "b"), label=evil))
    everywhere = dict.fromkeys(("method", "mode", "unit", "adjacency", "observer", "not_proven_because"), evil)
    text = markdown(made(said, stamp=evil, notes=[evil], **everywhere))
    assert "<script>" not in text.lower().replace("\\<", "")
    assert "\n# Heading" not in text


def test_how_to_load_it_fits_the_format() -> None:
    assert "InferenceSession" in markdown(made())
    assert ".network()" in markdown(made(kind="safetensors"))
    assert ".network(your_module)" in markdown(made(description(model={"kind": "own"}), kind="safetensors"))


def test_outputs_are_explained() -> None:
    assert "softmax makes probabilities" in meaning(description())
    assert "divided by their sum" in meaning(description(probabilities="sigmoid"))
    assert "above 0 is the second class" in meaning(description(probabilities="sigmoid", outputs=1))
    assert "not probabilities" in meaning(description(probabilities=None))
    assert meaning(description(classes=None, labels=())) == "the predicted number"
