"""Loops of these tests' own, whatever ran before them in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def no_other_loop() -> Iterator[None]:
    """A browser that another test opened leaves its event loop running in this thread for the rest of the session."""
    running = asyncio._get_running_loop()
    asyncio._set_running_loop(None)
    yield
    asyncio._set_running_loop(running)
