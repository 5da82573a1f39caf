"""A part of every item of the reproduction book run again and compared with it; processor time by item.

    python -m reproductions.small [--jobs 1] [ITEM ...]      # make reproduce-small

All items write into one folder, runs/reproduce-small: what two of them show is run once, and a second call continues.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time
from pathlib import Path

from reproductions import frontier

RESULTS, OUT = Path(__file__).parent / "results", Path("runs/reproduce-small")


def processor_seconds() -> float:
    """Of all that has ended below this process."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("items", nargs="*", metavar="ITEM")
    parser.add_argument("--jobs")
    parser.add_argument("--out", type=Path, default=OUT)
    asked = parser.parse_args()
    known = [
        name
        for place in sorted(RESULTS.glob("*/*.json"))
        if (name := place.relative_to(RESULTS).with_suffix("").as_posix()) not in frontier.names()
    ]
    check = [sys.executable, "-m", "reproductions", "check"]
    how = ["--out", str(asked.out)]
    how += ["--jobs", asked.jobs] if asked.jobs else []
    lines, failed, began = [], [], time.monotonic()
    for item in asked.items or known:
        print(f"== {item}", flush=True)
        before, start = processor_seconds(), time.monotonic()
        if subprocess.run([*check, item, *how], check=False).returncode:
            failed.append(item)
        lines.append((item, processor_seconds() - before, time.monotonic() - start))
    print("\nprocessor and clock seconds by item")
    for item, used, passed in lines:
        print(f"{item:32} {used:8.1f} {passed:8.1f}{'  not as in the book' if item in failed else ''}")
    print(f"{'all':32} {processor_seconds():8.1f} {time.monotonic() - began:8.1f}")
    if failed:
        print(f"not as in the book: {' '.join(failed)}")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
