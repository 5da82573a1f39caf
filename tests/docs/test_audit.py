"""docs/audit.md: the example does what it says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "audit.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_module_of_the_example_is_found_safe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (example,) = re.findall(r"^## Is my module safe\?\n.*?```python\n(.*?)```", PAGE, re.S | re.M)
    space: dict[str, object] = {}
    exec(compile(example, "docs/audit.md", "exec"), space)
    found = space["found"]
    assert isinstance(found, dict)
    assert found["violation"] is False
    assert found["audit"]["sensitivity"]["tried"] > 100
    assert len(list((tmp_path / "runs").iterdir())) == 1
