"""Parts of other packages are found by their entry points; one that is broken is named, and stops nobody."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.support.plugins import install
from tests.support.refusals import assert_names, expect_refusal

from gossamer.options import plugins
from gossamer.options.registry import Registry

shades: Registry[Any] = Registry("test.shade")


@shades.register("plain")
@dataclass(frozen=True, kw_only=True)
class Plain:
    pass


GOOD = """
import os
import sys
from dataclasses import dataclass

@sys.modules["shades_of_this_test"].register("deep")
@dataclass(frozen=True, kw_only=True)
class Deep:
    depth: float = 1.0
"""


@pytest.fixture
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on the path, in a process that has looked for no plug-in yet."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(plugins, "_LOADED", plugins._Loaded())
    monkeypatch.setitem(sys.modules, "shades_of_this_test", shades)  # type: ignore[arg-type]
    yield tmp_path
    shades._kinds.pop("deep", None)
    for name in ("good_part", "bad_part", "quitting_part"):
        sys.modules.pop(name, None)


def test_a_kind_of_another_package_is_found_when_it_is_asked_for(outside: Path) -> None:
    install(outside, "good-package", {"good_part": GOOD}, {"deep": "good_part"})
    assert shades.parse({"kind": "plain"}) == Plain()
    assert "good_part" not in sys.modules  # nobody needed it
    assert shades.parse({"kind": "deep", "depth": 2.0}).depth == 2.0
    assert list(shades) == ["plain", "deep"]
    assert shades["deep"](depth=1.0).kind == "deep"
    assert plugins.broken_plugins() == ()


def test_listing_finds_them_all(outside: Path) -> None:
    install(outside, "good-package", {"good_part": GOOD}, {"deep": "good_part"})
    assert set(shades.kinds) == {"plain", "deep"}


def test_a_broken_package_is_named_where_something_is_missing_and_stops_nobody(outside: Path) -> None:
    broken = {"bad_part": "import a_library_that_is_not_here", "quitting_part": "raise SystemExit(3)"}
    install(outside, "bad-package", broken, {"bad": "bad_part", "quitting": "quitting_part"})
    install(outside, "good-package", {"good_part": GOOD}, {"deep": "good_part"})
    assert shades.parse({"kind": "plain"}) == Plain()
    assert shades.parse({"kind": "deep"}).depth == 1.0
    names = "plain deep 'bad' bad-package 1.2 ModuleNotFoundError 'quitting' SystemExit"
    with expect_refusal("test.shade.kind", "other", names, remedy=True):
        shades.parse({"kind": "other"})


def test_a_name_that_is_taken_is_the_packages_mistake(outside: Path) -> None:
    install(outside, "bad-package", {"bad_part": GOOD.replace('"deep"', '"plain"')}, {"plain": "bad_part"})
    assert list(shades) == ["plain"]
    (sentence,) = plugins.broken_plugins()
    assert_names(sentence, names="bad-package 1.2 test.shade.kind plain")
    assert shades["plain"] is Plain


def test_one_file_is_a_plug_in_here_and_in_the_processes_that_follow(
    outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(plugins.FILES, "")
    file = outside / "deep.py"
    file.write_text(GOOD)
    plugins.plugin(file)
    plugins.plugin(str(file))  # once is enough
    assert shades.parse({"kind": "deep", "depth": 2.0}).depth == 2.0
    assert os.environ[plugins.FILES] == str(file)
    # Another process finds it by the environment alone.
    monkeypatch.setattr(plugins, "_LOADED", plugins._Loaded())
    shades._kinds.pop("deep")
    sys.modules.pop("gossamer_plugin_deep")
    assert shades.parse({"kind": "deep"}).depth == 1.0
    sys.modules.pop("gossamer_plugin_deep")


def test_a_file_that_is_none_or_stops_is_one_sentence(outside: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(plugins.FILES, "")
    with expect_refusal(key="nothing.py", names="file"):
        plugins.plugin("nothing.py")
    (outside / "stops.py").write_text("1 / 0")
    with expect_refusal(key="stops.py", names="ZeroDivisionError"):
        plugins.plugin(outside / "stops.py")
    assert os.environ[plugins.FILES] == ""
    monkeypatch.setenv(plugins.FILES, str(outside / "stops.py"))
    monkeypatch.setattr(plugins, "_LOADED", plugins._Loaded())
    with expect_refusal(key="test.shade.kind", value="deep", remedy=True):
        shades.parse({"kind": "deep"})
    assert "stops.py could not be loaded (ZeroDivisionError" in plugins.broken_plugins()[0]
