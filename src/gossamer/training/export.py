"""`gossamer export`: a folder with one model for other programs, its description and its card."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from torch import nn

from gossamer.errors import UserError
from gossamer.results.rundir import finite, make_empty, write_atomically
from gossamer.results.trained.card import card, markdown
from gossamer.results.trained.convert import FILES, converted
from gossamer.results.trained.models import Node
from gossamer.results.trained.weights import DESCRIPTION
from gossamer.training.load import load


def export(
    run: Path,
    out: Path,
    *,
    kind: str = "safetensors",
    node: Node | None = None,
    module: nn.Module | None = None,
) -> dict[str, Any]:
    """The files that were written, and the card. `node` None: the average, or at a site of a study its own model."""
    if kind not in FILES:
        raise UserError(f"--format {kind} is not known; use {', '.join(FILES)}.")
    loaded = load(run, module=module)
    models = loaded.models
    if loaded.verdict.broken is not None:
        raise UserError(
            f"{run} does not verify, so its privacy statement goes onto no card: {loaded.verdict.broken}"
        )
    node = models.whose(node)
    content, file = converted(models, node, kind), FILES[kind]  # a mistake shows before anything is made
    make_empty(out)
    try:
        write_atomically(out / file, content)
        said = finite(
            card(
                models.description,
                loaded.certificate,
                loaded.manifest,
                rounds=loaded.config.rounds,
                node=node,
                file=file,
                kind=kind,
            )
        )
        write_atomically(out / DESCRIPTION, models.description.text().encode())
        write_atomically(
            out / "model_card.json", (json.dumps(said, indent=2, ensure_ascii=False) + "\n").encode()
        )
        write_atomically(out / "MODEL_CARD.md", markdown(said).encode())
    except OSError as error:
        raise UserError(f"--out {out} cannot be written: {error.strerror or error}.") from None
    return {"out": str(out), "files": [file, DESCRIPTION, "MODEL_CARD.md", "model_card.json"], "card": said}
