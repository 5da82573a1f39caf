"""What is being done, for whoever waits for it: a word to the log at each step that may take seconds."""

from __future__ import annotations

import logging

STAGES = logging.getLogger("gossamer.stage")


def stage(what: str) -> None:
    """From now on this; an empty word: something else shows from here on what is done, a download's bar for one."""
    STAGES.info(what)
