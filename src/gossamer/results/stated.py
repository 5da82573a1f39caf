"""A certificate's figures beside what they should be: the sentences where they differ, and by how much they may."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gossamer.errors import UserError

_BELOW = 1e-6  # relative: another machine's rounding
_ABOVE = 1e-2  # relative: an accountant that has become a little sharper since


class Stated:
    def __init__(self, path: Path, stated: Mapping[str, Any]):
        self.path, self.stated = path, stated

    def damaged(self, key: str) -> UserError:
        return UserError(f"{self.path} is damaged: its {key!r} is not what a certificate has there.")

    def differs(self, key: str, stated: Any, found: Any) -> UserError:
        return UserError(f"{self.path} states {key} = {stated!r:.60} where the ledgers say {found!r:.60}.")

    def length(self, *keys: str) -> int:
        """Of lists with an entry per node."""
        for key in keys:
            if not isinstance(self.stated[key], list) or len(self.stated[key]) != len(self.stated[keys[0]]):
                raise self.damaged(key)
        return len(self.stated[keys[0]])

    def entry(self, key: str, node: int) -> dict[str, Any]:
        found = self.stated[key][node]
        if not isinstance(found, dict):
            raise self.damaged(f"{key}[{node}]")
        return found

    def number(self, key: str) -> float:
        found = self.stated[key]
        if type(found) not in (int, float):
            raise self.damaged(key)
        return float(found)

    def epsilon(self, key: str, value: Any) -> float:
        """JSON has no infinity."""
        if value is None:
            return math.inf
        if type(value) not in (int, float) or not 0 <= value < math.inf:
            raise self.damaged(key)
        return float(value)

    def same(self, key: str, found: Any, stated: Any) -> None:
        if type(found) is not type(stated) and not {type(found), type(stated)} <= {int, float}:
            raise self.differs(key, stated, found)
        if found != stated:
            raise self.differs(key, stated, found)

    def close(self, key: str, found: float | None, stated: Any, *, above: bool = False) -> None:
        """Never below what was found; above it by more than a sharper program would explain only if `above`."""
        if found is None or stated is None or math.isinf(found):
            self.same(key, found, stated)
            return
        most = math.inf if above else found * (1 + _ABOVE) + 1e-12
        if type(stated) not in (int, float) or not found * (1 - _BELOW) - 1e-12 <= stated <= most:
            raise self.differs(key, stated, found)
