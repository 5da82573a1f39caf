"""What is installed against what was recorded, and what an audit says when nobody could be asked."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import json
import sys
import zipfile
from importlib.metadata import Distribution, PathDistribution
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / ".ci" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


verify_deps, audit_deps = script("verify_deps"), script("audit_deps")
FILES = {"part/__init__.py": b"x = 1\n", "part-1.0.dist-info/METADATA": b"Name: part\nVersion: 1.0\n"}
RECORD = "part-1.0.dist-info/RECORD"


def record(files: dict[str, bytes]) -> str:
    hashes = {
        name: base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        for name, content in files.items()
    }
    lines = [f"{name},sha256={value},{len(files[name])}" for name, value in hashes.items()]
    return "\n".join([*lines, f"{RECORD},,", "../../bin/part,sha256=x,1", "part-1.0.dist-info/INSTALLER,,"]) + "\n"


@pytest.fixture
def installed(tmp_path: Path) -> Distribution:
    for name, content in {**FILES, RECORD: record(FILES).encode()}.items():
        path = tmp_path / "site" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return PathDistribution(tmp_path / "site" / "part-1.0.dist-info")


def wheel(folder: Path, files: dict[str, bytes]) -> Path:
    path = folder / "part-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
        archive.writestr(RECORD, "\n".join([*record(files).splitlines()[: len(files)], f"{RECORD},,"]))
    return path


def test_what_was_changed_or_put_beside_is_named(installed: Distribution, tmp_path: Path) -> None:
    site = tmp_path / "site"
    assert verify_deps.changed(installed) == []
    assert verify_deps.foreign(site, [installed]) == []
    (site / "part" / "__init__.py").write_text("x = 2\n")
    (site / "evil.pth").write_text("import os")
    assert verify_deps.changed(installed) == ["part/__init__.py was changed"]
    (site / "sourceless.pyc").write_bytes(b"")  # Python imports it without a source
    (site / "part" / "__pycache__").mkdir()
    (site / "part" / "__pycache__" / "__init__.pyc").write_bytes(b"")
    assert verify_deps.foreign(site, [installed]) == [
        "evil.pth is of no distribution", "sourceless.pyc is of no distribution"
    ]  # fmt: skip
    (site / "part" / "__init__.py").unlink()
    assert verify_deps.changed(installed) == ["part/__init__.py is missing"]


def test_a_list_of_files_is_known_or_is_that_of_a_recorded_wheel(installed: Distribution, tmp_path: Path) -> None:
    files, why = verify_deps.listed(installed), verify_deps.not_known_because
    assert set(files) == set(FILES)
    seen = {"part==1.0": {"contents": ["0", verify_deps.contents_digest(files)], "wheels": {}}}
    assert why("part==1.0", files, seen, offline=False) is None
    assert why("part==1.1", files, seen, offline=False) == "no wheel of it is recorded"
    other = {"part==1.0": {"contents": ["0"], "wheels": {"a.whl": "1", "b.whl": "2"}}}
    assert "not compared with 2 recorded wheels" in str(why("part==1.0", files, other, offline=True))
    made = wheel(tmp_path, FILES)
    recorded = {"of-another-machine.whl": "1", made.name: hashlib.sha256(made.read_bytes()).hexdigest()}
    assert verify_deps.not_of_wheel(made, files, recorded) is None
    assert "not among the 1 recorded wheels" in verify_deps.not_of_wheel(made, files, {made.name: "0"})
    made = wheel(tmp_path, {**FILES, "part/__init__.py": b"x = 3\n"})
    recorded = {made.name: hashlib.sha256(made.read_bytes()).hexdigest()}
    assert "its files are not those of the recorded" in verify_deps.not_of_wheel(made, files, recorded)


def test_every_pinned_package_has_recorded_wheels_and_torch_one_for_every_usual_machine() -> None:
    known = json.loads((ROOT / ".ci" / "hashes.json").read_text())
    for key in verify_deps._pinned():
        assert known[key]["wheels"], key
    (torch,) = (key for key in verify_deps._pinned() if key.startswith("torch=="))
    names = " ".join(known[torch]["wheels"])
    for machine in ("manylinux_2_28_x86_64", "manylinux_2_28_aarch64", "macosx", "win_amd64"):
        for python in ("cp311", "cp312", "cp313"):
            assert f"{python}-{machine}" in names
    for entry in known.values():
        assert all(len(value) == 64 and int(value, 16) for value in entry["wheels"].values())


@pytest.mark.parametrize(
    ("dependencies", "code", "words"),
    [
        ([{"name": "a", "version": "1", "vulns": []}], 0, "1 of 1 packages audited, 0 known flaws"),
        (
            [{"name": "a", "version": "1", "vulns": [{"id": "X-1", "fix_versions": ["2"]}]}],
            1,
            "a==1: X-1, mended in 2",
        ),
        ([{"name": "a", "skip_reason": "not found"}], 3, "no advisory source is at hand"),
        (None, 3, "no advisory source is at hand, so nothing was audited (no route to host)."),
    ],
)
def test_an_audit_that_could_ask_nobody_says_so(
    dependencies: object, code: int, words: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """What pip-audit printed is told apart by its own output: behind a mirror it ends with 0 and asks nobody."""
    tool = tmp_path / "pip-audit"
    said = json.dumps({"dependencies": dependencies}) if dependencies is not None else ""
    tool.write_text(f"#!{sys.executable}\nimport sys\nprint({said!r})\nprint('no route to host', file=sys.stderr)\n")
    tool.chmod(0o755)
    assert audit_deps.main(str(tool), str(tmp_path)) == code
    out, err = capfd.readouterr()
    assert words in out + err
