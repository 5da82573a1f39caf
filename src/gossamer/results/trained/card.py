"""The card that goes with a model: what it is, what it was trained on, and what its privacy statement covers."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from gossamer.models.tasks import MultiLabel, Regression
from gossamer.results.certificate import epsilon_text, site_of
from gossamer.results.trained.convert import steps_inside
from gossamer.results.trained.description import BROUGHT, Description
from gossamer.results.trained.models import Node

WITHHELD = "not given: the records are private, and a digest would let others test guesses of them"


def card(
    description: Description,
    certificate: Mapping[str, Any],
    manifest: Mapping[str, Any],
    *,
    rounds: int,
    node: Node,
    file: str,
    kind: str,
) -> dict[str, Any]:
    c, d = certificate, description
    data = manifest.get("data", {})
    return {
        "name": manifest["name"],
        "task": d.task,
        "classes": d.names,
        "model": {"file": file, "format": kind, "network": d.model, "of": whose(node, d.nodes, c)},
        "inputs": _inputs(d, kind),
        "outputs": meaning(d),
        "data": {**{k: v for k, v in data.items() if k != "sha256"}, "sha256": data.get("sha256", WITHHELD)},
        "method": c.get("method"),
        "mode": c.get("mode"),
        "nodes": d.nodes,
        "rounds": rounds,
        "privacy": {
            "epsilon_proven": c["epsilon_proven"],
            "epsilon_claimed": c["epsilon_claimed"],
            "epsilon_audited": c["epsilon_audited"],
            "delta": c["delta"],
            "adjacency": c["adjacency"],
            "unit": c["unit"],
            "observer": c["observer"],
            "stamp": c["stamp"],
            "not_proven_because": c["not_proven_because"],
            "budget": c.get("budget"),
            "notes": [*c.get("claim_flags", []), *c.get("notes", [])],
            "not_covered": [
                sentence.replace("listed here", "of the certificate") for sentence in c["not_covered"]
            ],
        },
        "run": d.run,
        "trained": manifest.get("started"),
        "exported": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "versions": c["versions"],
    }


def whose(node: Node, nodes: int, certificate: Mapping[str, Any]) -> str:
    """Which model it is, for people."""
    if node == "average":
        return f"the mean of the models of all {nodes} nodes"
    site = site_of(certificate)
    return f"node {node} of {nodes}" + (f", the site {site}" if site else "")


def meaning(d: Description) -> str:
    """What the numbers that the network gives are."""
    if isinstance(d.prediction, Regression):
        what = "number" if d.level is None else f"{d.level:g}-quantile"
        return f"the predicted {what}" if d.mean is None else "its exponential is the predicted mean"
    if isinstance(d.prediction, MultiLabel):
        each = "one number per label, in their order"
        if d.probabilities is None:
            return f"{each}; scores, above 0.5 is yes"
        return f"{each}; not normalised (logits): 1 / (1 + exp(−t)) is the probability of yes"
    each = (
        "one number per class, in the order of the classes"
        if d.outputs > 1
        else "one number: above 0 is the second class"
    )
    if d.probabilities == "softmax":
        return f"{each}; not normalised (logits): softmax makes probabilities of them, the largest is the prediction"
    if d.probabilities == "sigmoid":
        rest = ", divided by their sum" if d.outputs > 1 else " of the second class"
        return f"{each}; not normalised (logits): 1 / (1 + exp(−t)) makes probabilities of them{rest}"
    return f"{each}; scores, which are no probabilities"


def _inputs(d: Description, kind: str) -> dict[str, Any]:
    inside = steps_inside(d.inputs) and kind != "safetensors"
    return {
        "shape": list(d.inputs.shape if inside else d.input_shape),
        "columns": list(d.inputs.columns),
        "label": d.inputs.label,
        "steps": d.inputs.steps(),
        "steps_are": "in the file" if inside else "to be done before, as `gossamer predict` does them",
    }


def markdown(c: Mapping[str, Any]) -> str:
    """The same for people."""
    p, model, inputs = c["privacy"], c["model"], c["inputs"]
    columns = inputs["columns"]
    lines = [
        f"# Model card: {_plain(c['name'])}",
        "",
        *([f"**{_plain(p['stamp'].upper())}.**", ""] if p["stamp"] else []),
        *_list(
            {
                "Task": c["task"],
                "Classes": ", ".join(_plain(name) for name in c["classes"][:20]) or None,
                "Model": f"{_plain(model['network']['kind'])}, {_plain(model['of'])}; `{model['file']}`",
                "Method": _plain(
                    f"{c['method']}, {c['mode']} mode, {c['nodes']} nodes, {c['rounds']} rounds"
                ),
                "Trained": _plain(
                    f"{c['trained']}, run {c['run']}, gossamer {c['versions'].get('gossamer')}"
                ),
                "Data": _plain(f"{c['data'].get('source', 'not said')}; SHA-256 {c['data']['sha256']}"),
                "Exported": c["exported"],
            }
        ),
        "",
        "## Privacy",
        "",
        *_list(
            {
                "Proven": f"ε = {epsilon_text(_inf(p['epsilon_proven']))} at δ = {p['delta']:g}",
                "Claimed by its paper": p["epsilon_claimed"] and f"ε = {epsilon_text(p['epsilon_claimed'])}",
                "Audited": "no"
                if p["epsilon_audited"] is None
                else f"ε ≥ {epsilon_text(p['epsilon_audited'])}",
                "Adjacency": _plain(p["adjacency"]),
                "Unit": _plain(p["unit"]),
                "Observer": _plain(p["observer"]),
                "Not proven because": p["not_proven_because"] and _plain(p["not_proven_because"]),
                "All runs on these records": _spent(p["budget"]),
            }
        ),
        *(["", "About this run:", "", *[f"- {_plain(note)}" for note in p["notes"]]] if p["notes"] else []),
        "",
        "Not covered:",
        "",
        *[f"- {_plain(sentence)}" for sentence in p["not_covered"]],
        "",
        "## Inputs and outputs",
        "",
        *_list(
            {
                "A record": f"{' × '.join(map(str, inputs['shape'])) or 'a place'}, float32"
                if inputs["shape"]
                else "a place in a table, int64",
                "Columns, in this order": ", ".join(_plain(name) for name in columns[:50])
                + (f" and {len(columns) - 50} more (model.json)" if len(columns) > 50 else ""),
                "Predicted column": inputs["label"] and _plain(inputs["label"]),
                "Steps": "; ".join(map(_plain, inputs["steps"])) or "none",
                "The steps are": inputs["steps_are"] if inputs["steps"] else None,
                "Outputs": c["outputs"],
            }
        ),
        "",
        "## How to load it",
        "",
        "```python",
        *_loading(model),
        "```",
        "",
    ]
    return "\n".join(lines)


def _loading(model: Mapping[str, Any]) -> list[str]:
    if model["format"] == "onnx":
        return [
            "import onnxruntime",
            "",
            f'session = onnxruntime.InferenceSession("{model["file"]}")',
            'outputs = session.run(None, {"records": rows})[0]  # rows: float32, a record each',
        ]
    if model["format"] == "torchscript":
        return ["import torch", "", f'network = torch.jit.load("{model["file"]}")', "outputs = network(rows)"]
    return [
        "from pathlib import Path",
        "",
        "from gossamer.results.trained.description import read",
        "from safetensors.torch import load_file",
        "",
        f'network = read(Path("model.json")).network({"your_module" if model["network"]["kind"] in BROUGHT else ""})',
        f'network.load_state_dict(load_file("{model["file"]}"), strict=False)',
        "outputs = network.eval()(rows)",
    ]


def _list(entries: Mapping[str, Any]) -> list[str]:
    return [f"- {name}: {value}" for name, value in entries.items() if value]


def _spent(budget: Mapping[str, Any] | None) -> str | None:
    if budget is None or budget.get("delta") is None:
        return None
    return f"{budget['runs']} so far, proven ε = {epsilon_text(_inf(budget['epsilon']))} at δ = {budget['delta']:g}"


def _inf(value: float | None) -> float:
    """JSON has no infinity."""
    return float("inf") if value is None else value


def _plain(text: Any) -> str:
    """What a run directory says is others' words: on one line, and nothing that Markdown or HTML obeys."""
    shown = "".join(ch if ch.isprintable() else " " for ch in str(text))[:400]
    return "".join(f"\\{ch}" if ch in "\\`*_[]<>|#" else ch for ch in shown)
