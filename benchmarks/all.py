"""All of docs/performance.md's figures of speed, in one go on a quiet machine: about a quarter of an hour.

    python benchmarks/all.py --data-dir DIR                 measure and rewrite the page
    python benchmarks/all.py --parts engine,growth          some of it
    python benchmarks/all.py --print                        measure and rewrite nothing

The parts: engine (steps against Opacus and a plain loop, noise, mixing, memory, and a profile of what misses its aim),
growth (plots over n, d, lot, K), end (whole runs against a loop of Opacus engines), start (the first second).
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

PARTS = {"engine": "engine.py", "growth": "growth.py", "end": "end_to_end.py", "start": "startup.py"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default=",".join(PARTS), help=f"of {', '.join(PARTS)}")
    parser.add_argument("--data-dir", help="where mnist.npz is, for the part end")
    parser.add_argument("--print", action="store_true", help="leave docs/performance.md as it is")
    options = parser.parse_args()
    chosen = options.parts.split(",")
    unknown = [part for part in chosen if part not in PARTS]
    if unknown:
        parser.error(f"--parts {unknown[0]} is unknown; choose of {', '.join(PARTS)}")
    for part in chosen:
        command = [sys.executable, str(Path(__file__).parent / PARTS[part])]
        command += [] if options.print else ["--write"]
        command += ["--data-dir", options.data_dir] if part == "end" and options.data_dir else []
        start = time.perf_counter()
        print(f"== {part}", flush=True)
        subprocess.run(command, check=True)
        print(f"== {part}: {time.perf_counter() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main()
