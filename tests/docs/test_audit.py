"""docs/audit.md: the example does what it says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import cast

import pytest
import torch

from gossamer.auditing.api import Audit

PAGE = (Path(__file__).parents[2] / "docs" / "audit.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_module_of_the_example_is_found_safe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every time, with two threads: in which order numbers are added is up to them."""
    monkeypatch.chdir(tmp_path)
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        found = [_run_example() for _ in range(4)]
    finally:
        torch.set_num_threads(threads)
    assert [audit.violation for audit in found] == [False] * 4
    assert all(audit["audit"]["sensitivity"]["tried"] > 100 for audit in found)
    assert len({audit.directory for audit in found}) == 4


def _run_example() -> Audit:
    (example,) = re.findall(r"^## Is my module safe\?\n.*?```python\n(.*?)```", PAGE, re.S | re.M)
    space: dict[str, object] = {}
    exec(compile(example, "docs/audit.md", "exec"), space)
    return cast(Audit, space["found"])
