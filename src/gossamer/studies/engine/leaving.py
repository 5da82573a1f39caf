"""What may leave this machine for a cluster, and what may not: a sentence for each."""

from __future__ import annotations

from gossamer.config.schema import RunConfig
from gossamer.errors import UserError
from gossamer.models.own import Own


def refuse(config: RunConfig, engine: str) -> None:
    """Records of the user's own, and code that a configuration names."""
    if config.data.own:
        raise UserError(
            f"data.kind = {config.data.kind!r} is records of your own, and {engine} would carry them elsewhere: they "
            "stay here, beside their account of what was spent on them; use --engine local."
        )
    if isinstance(config.model, Own):
        raise UserError(
            f"model.path = {config.model.path!r} is code of yours, and {engine} sends no code to be run elsewhere; "
            "register the model in a plug-in that the workers know (--plugin), or use --engine local."
        )
