"""Is what is installed what was recorded? Two checks of every distribution in this environment:

1. its files against the hashes that its wheel brought along (RECORD): nothing was changed after the installation;
2. that list of hashes against those in .ci/hashes.json: it is a wheel that was looked at. There are several per
   package, as wheels differ by platform and Python. One that is not there is named, exit 1; installing and
   running never ask this file, so that a machine that gets other wheels goes on working.

`--record` adds what is installed to the file: look at the difference before it is committed.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import sys
from importlib.metadata import Distribution, distributions
from pathlib import Path

KNOWN = Path(__file__).with_name("hashes.json")
# Written by the installer, not by the wheel.
BY_INSTALLER = ("INSTALLER", "REQUESTED", "RECORD", "direct_url.json")


def listed(found: Distribution) -> dict[str, str]:
    """The files that came with the wheel, and their hashes."""
    return {
        str(file): file.hash.value
        for file in found.files or ()
        if file.hash is not None
        and file.hash.mode == "sha256"
        and not str(file).startswith("..")  # commands name this environment's Python
        and not (file.parent.name.endswith(".dist-info") and file.name in BY_INSTALLER)
    }


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


def wheel_digest(found: Distribution) -> str:
    lines = [f"{name} {value}" for name, value in sorted(listed(found).items())]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--record", action="store_true", help="add what is installed to the recorded hashes")
    record = parser.parse_args().record
    known: dict[str, list[str]] = json.loads(KNOWN.read_text(encoding="utf-8")) if KNOWN.exists() else {}
    problems, count = [], 0
    for found in sorted(distributions(), key=lambda each: each.metadata["Name"].lower()):
        name = found.metadata["Name"].lower().replace("_", "-")
        if name in ("gossamer", "pip"):  # this repository, and the installer that the venv brought
            continue
        count += 1
        key = f"{name}=={found.version}"
        problems += [f"{key}: {wrong}" for wrong in changed(found)]
        digest = wheel_digest(found)
        if digest not in known.get(key, []):
            if record:
                known[key] = sorted([*known.get(key, []), digest])
            else:
                problems.append(
                    f"{key}: its files are not among the {len(known.get(key, []))} recorded wheels"
                )
    if record:
        KNOWN.write_text(json.dumps(dict(sorted(known.items())), indent=1) + "\n", encoding="utf-8")
    for problem in problems:
        print(f"verify-deps: {problem}", file=sys.stderr)
    print(f"verify-deps: {count} distributions, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
