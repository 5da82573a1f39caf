"""Is what is installed what was recorded? Two checks of every distribution in this environment:

1. its files against the hashes that its wheel brought along (RECORD): nothing was changed after the installation,
   and nothing lies beside them that no wheel brought;
2. that list against .ci/hashes.json, which knows several wheels of every package, as they differ by platform and
   Python: `contents` are lists that were seen installed, `wheels` the files that the package index names with their
   sha256. Of a list that was never seen, the wheel is fetched and must be one of those, with this very list.

Exit 1: files were changed. Exit 3: nothing was changed, but a wheel is not known. Installing and running never ask
this file, so that a machine that gets other wheels goes on working.

What Python has compiled and kept (__pycache__) is not looked at: remove it if in doubt, and it is made anew.

`--record` adds what is installed here and what the index names to the file: look at the difference before it is
committed. `--offline` fetches nothing.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import html
import json
import os
import re
import subprocess
import sys
import sysconfig
import tempfile
import urllib.request
import zipfile
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any

KNOWN = Path(__file__).with_name("hashes.json")
PINNED = Path(__file__).parent.parent / "constraints.txt"
CHANGED, UNKNOWN = 1, 3  # exit codes
# Written by the installer, not by the wheel.
BY_INSTALLER = ("INSTALLER", "REQUESTED", "RECORD", "direct_url.json")
# Of all that an index has: what runs on the Pythons and machines that people have.
_USUAL = re.compile(
    r"-(?:py3\d*|py2\.py3|cp3\d+)-(?:none|abi3|cp31[1-9])-(?:any|win_amd64|macosx\w+|(?:many)?linux\w*_(?:x86_64|aarch64))"
)


def listed(found: Distribution) -> dict[str, str]:
    """The files that came with the wheel, and their hashes."""
    return {
        str(file): file.hash.value
        for file in found.files or ()
        if file.hash is not None and file.hash.mode == "sha256" and _of_wheel(str(file))
    }


def _of_wheel(name: str) -> bool:
    """Not what the installer made: commands name this environment's Python."""
    folder, _, file = name.rpartition("/")
    return not name.startswith("..") and not (folder.endswith(".dist-info") and file in BY_INSTALLER)


def changed(found: Distribution) -> list[str]:
    """Files that are not what the wheel brought."""
    wrong = []
    for name, expected in listed(found).items():
        try:
            content = Path(str(found.locate_file(name))).read_bytes()
        except OSError:
            wrong.append(f"{name} is missing")
            continue
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        if digest != expected:
            wrong.append(f"{name} was changed")
    return wrong


def contents_digest(files: dict[str, str]) -> str:
    return hashlib.sha256("\n".join(f"{name} {files[name]}" for name in sorted(files)).encode()).hexdigest()


def listed_in_wheel(wheel: Path) -> dict[str, str]:
    """The same list, as the wheel itself has it."""
    with zipfile.ZipFile(wheel) as archive:
        name = next(each for each in archive.namelist() if each.endswith(".dist-info/RECORD"))
        rows = [line.rsplit(",", 2) for line in archive.read(name).decode().splitlines()]
    # Scripts and headers are put elsewhere by the installer, and stand under ".." afterwards.
    return {
        file.strip('"'): value.removeprefix("sha256=")
        for file, value, _ in rows
        if value and _of_wheel(file.strip('"')) and ".data/" not in file
    }


def not_known_because(key: str, files: dict[str, str], known: dict[str, Any], *, offline: bool) -> str | None:
    """Why this list is of no recorded wheel; None if it is of one."""
    entry = known.get(key, {"contents": [], "wheels": {}})
    if contents_digest(files) in entry["contents"]:
        return None
    if not entry["wheels"]:
        return "no wheel of it is recorded"
    if offline:
        return f"its files were not seen before, and not compared with {len(entry['wheels'])} recorded wheels"
    with tempfile.TemporaryDirectory() as folder:
        pip = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "-q",
            "--no-deps",
            "--only-binary=:all:",
            "-d",
            folder,
        ]
        subprocess.run([*pip, key], capture_output=True, check=False)
        wheel = next(Path(folder).glob("*.whl"), None)
        if wheel is None:
            return "its files were not seen before, and its wheel cannot be fetched to be compared"
        return not_of_wheel(wheel, files, entry["wheels"])


def not_of_wheel(wheel: Path, files: dict[str, str], recorded: dict[str, str]) -> str | None:
    """Why this list is not that of the wheel, or the wheel none of those recorded."""
    if recorded.get(wheel.name) != hashlib.sha256(wheel.read_bytes()).hexdigest():
        return f"the index's {wheel.name} is not among the {len(recorded)} recorded wheels"
    theirs = {name: value for name, value in files.items() if ".data/" not in name}
    return None if listed_in_wheel(wheel) == theirs else f"its files are not those of the recorded {wheel.name}"


def foreign(site: Path, found: list[Distribution]) -> list[str]:
    """Files that no distribution brought: whatever lies there can be imported."""
    ours = {str(file) for each in found for file in each.files or ()}
    return [
        f"{name} is of no distribution"
        for path in sorted(site.rglob("*"))
        if not path.is_dir()
        and (name := path.relative_to(site).as_posix()) not in ours
        and not (path.suffix == ".pyc" and path.parent.name == "__pycache__")  # Python's own, of a file beside it
    ]


def wheels_of(name: str, version: str) -> dict[str, str]:
    """File → sha256, as the package index of this machine's pip names them."""
    request = urllib.request.Request(
        f"{_index()}/{name}/", headers={"Accept": "application/vnd.pypi.simple.v1+json, text/html;q=0.5"}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        page = answer.read().decode()
    try:
        named = {file["filename"]: file["hashes"].get("sha256", "") for file in json.loads(page)["files"]}
    except ValueError:
        links = re.findall(r'href="[^"#]*/([^"/#]+\.whl)#sha256=([0-9a-f]{64})"', page)
        named = {html.unescape(file).replace("%2B", "+"): value for file, value in links}
    start = f"{re.sub(r'[-_.]+', '_', name)}-{version}-".lower()
    return {
        file: value
        for file, value in sorted(named.items())
        if value
        and re.sub(r"[-.]+(?=[^-]*-" + re.escape(version) + ")", "_", file).lower().startswith(start)
        and _USUAL.search(file)
    }


def _index() -> str:
    asked = [sys.executable, "-m", "pip", "config", "get", "global.index-url"]
    told = (
        os.environ.get("PIP_INDEX_URL")
        or subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
    )
    if told:
        return told.rstrip("/")
    from pip._internal.models.index import PyPI  # where pip itself would look

    return str(PyPI.simple_url)


def _pinned() -> list[str]:
    """What other machines get, which may be of another build than here (torch above all)."""
    pins = [line.split("==") for line in PINNED.read_text(encoding="utf-8").splitlines() if "==" in line]
    return [f"{_usual(name)}=={version.strip()}" for name, version in pins]


def _usual(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name.strip()).lower()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--record", action="store_true", help="add what is installed, and what the index names")
    parser.add_argument("--offline", action="store_true", help="fetch nothing")
    how = parser.parse_args()
    known: dict[str, Any] = json.loads(KNOWN.read_text(encoding="utf-8")) if KNOWN.exists() else {}
    everything = sorted(distributions(), key=lambda each: each.metadata["Name"].lower())
    wrong, strange, count = [], list[str](), 0
    for site in {Path(sysconfig.get_path(kind)) for kind in ("purelib", "platlib")}:
        wrong += foreign(site, everything)
    for found in everything:
        name = _usual(found.metadata["Name"])
        if name in ("gossamer", "pip"):  # this repository, and the installer that the venv brought
            continue
        count += 1
        key, files = f"{name}=={found.version}", listed(found)
        wrong += [f"{key}: {what}" for what in changed(found)]
        if how.record:
            entry = known.setdefault(key, {"contents": [], "wheels": {}})
            entry["contents"] = sorted({*entry["contents"], contents_digest(files)})
        elif (because := not_known_because(key, files, known, offline=how.offline)) is not None:
            strange.append(f"{key}: {because}")
    if how.record:
        if not how.offline:
            for key in sorted({*known, *_pinned()}):
                name, _, version = key.partition("==")
                known.setdefault(key, {"contents": [], "wheels": {}})["wheels"] |= wheels_of(name, version)
        KNOWN.write_text(json.dumps(dict(sorted(known.items())), indent=1) + "\n", encoding="utf-8")
    for problem in wrong:
        print(f"verify-deps: {problem}", file=sys.stderr)
    for problem in strange:
        print(f"verify-deps: unknown: {problem}", file=sys.stderr)
    print(f"verify-deps: {count} distributions, {len(wrong)} files changed, {len(strange)} wheels unknown")
    return CHANGED if wrong else UNKNOWN if strange else 0


if __name__ == "__main__":
    sys.exit(main())
