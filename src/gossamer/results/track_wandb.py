"""Weights & Biases, by its own library; its files lie under `wandb/` in the run directory.

With WANDB_MODE=offline nothing is sent, and `wandb sync` may do it later. Everything that the library would collect by
itself is off: the command's words, the terminal's output, the git repository, the host, how busy it is.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from gossamer.errors import UserError
from gossamer.results.track import scalars

PROJECT = "gossamer"  # unless WANDB_PROJECT names another
_STAYS_HERE = ("offline", "dryrun", "disabled")


def ready() -> None:
    """Nothing is asked where nothing is sent; else the server must know who we are."""
    import wandb

    if os.environ.get("WANDB_MODE") in _STAYS_HERE:
        return
    try:
        known = wandb.login(prompt=False, verify=True, timeout=20)
    except Exception as error:  # whatever its library may raise
        raise UserError(_SENTENCE.format(type(error).__name__)) from None
    if not known:
        raise UserError(_SENTENCE.format("no key"))


_SENTENCE = (
    "--track wandb cannot log in ({}); run `wandb login` first, or set WANDB_MODE=offline to keep its files in the run "
    "directory."
)


class WeightsAndBiases:
    def __init__(self, directory: Path, facts: dict[str, Any]):
        import wandb

        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        quiet = wandb.Settings(
            silent=True,
            console="off",
            disable_code=True,
            disable_git=True,
            save_code=False,
            disable_job_creation=True,
            host="not-sent",
            program="gossamer",
            x_disable_meta=True,
            x_disable_stats=True,
            x_disable_machine_info=True,
            x_save_requirements=False,
            finish_timeout=60,
            finish_timeout_raises=True,
        )
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT") or PROJECT,
            name=directory.name,
            dir=directory,
            config={name: str(text) for name, text in facts.items()},
            settings=quiet,
        )
        self._ended = False

    def metrics(self, row: dict[str, Any]) -> None:
        at = row["round"]
        # Rounds in place of a clock: how long one took is not public, see `public`.
        self._run.log({**scalars(row), "_timestamp": float(at)}, step=at)

    def end(self, facts: dict[str, str]) -> None:
        self._run.summary.update({f"certificate.{name}": text for name, text in facts.items()})
        self._ended = True

    def close(self) -> None:
        self._run.finish(exit_code=0 if self._ended else 1)
