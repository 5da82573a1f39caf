"""The first second: what a command costs before its first round, against importing torch alone.

    python benchmarks/startup.py             print
    python benchmarks/startup.py --write     and rewrite the table in docs/performance.md

Every command is a process of its own. They take turns, so that a busy moment of the machine hits all of them; medians
of processor time (user and system, all threads) and of wall time, and ratios to `import torch`. A run is ended when
its first round is done: by then everything that a round needs has been loaded.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

DOCUMENT = Path(__file__).parent.parent / "docs" / "performance.md"
MARKS = "<!-- startup -->\n", "<!-- end of startup -->"
COMMAND = "import sys; sys.argv = ['gossamer', *sys.argv[1:]]; from gossamer.cli import main; main()"
FIRST_ROUND = f"""
import os
from gossamer.results.console import RunDisplay
RunDisplay.round = lambda self, done: os._exit(0)
{COMMAND}
"""
CASES = {
    "`python -c 'import torch'`": ["import torch"],
    "`gossamer --help`": [COMMAND, "--help"],
    "`gossamer run quickstart`, to the end of round 1": [FIRST_ROUND, "run", "quickstart"],
    "`gossamer plan quickstart`": [COMMAND, "plan", "quickstart"],
    "`gossamer plan quickstart --set rounds=20000`": [
        COMMAND, "plan", "quickstart", "--set", "rounds=20000",
    ],
    "`gossamer plan quickstart --set rounds=30000 --set privacy.epsilon=1e-9`": [
        COMMAND, "plan", "quickstart", "--set", "rounds=30000", "--set", "privacy.epsilon=1e-9",
    ],
}  # fmt: skip


def spent(words: list[str], folder: str) -> tuple[float, float]:
    """Seconds of processor time and of wall time."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    start = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-c", *words], cwd=folder, env=environment,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{words[1:]} ended with {process.returncode}")
    return usage.ru_utime + usage.ru_stime, time.perf_counter() - start


def rows(turns: int) -> list[str]:
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in CASES}
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(turns + 1):  # the first fills caches: bytecode, compiled kernels
            for name, words in CASES.items():
                one = spent(words, folder)
                if turn:
                    found[name].append(one)
    processor = {name: median(cpu for cpu, _ in all_) for name, all_ in found.items()}
    wall = {name: median(seconds for _, seconds in all_) for name, all_ in found.items()}
    base = next(iter(CASES))
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    return [
        f"Medians of {turns} turns on {os.cpu_count()} cores; load after (1, 5, 15 minutes): {load}.",
        "",
        "| command | processor, s | against torch | wall, s | against torch |",
        "|---|---|---|---|---|",
        *(
            f"| {name} | {processor[name]:.2f} | {processor[name] / processor[base]:.2f}× "
            f"| {wall[name]:.2f} | {wall[name] / wall[base]:.2f}× |"
            for name in CASES
        ),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--write", action="store_true", help="rewrite the table in docs/performance.md")
    asked = parser.parse_args()
    text = "\n".join(rows(asked.turns))
    print(text)
    if asked.write:
        page = DOCUMENT.read_text(encoding="utf-8")
        before, rest = page.split(MARKS[0], 1)
        _, after = rest.split(MARKS[1], 1)
        DOCUMENT.write_text(f"{before}{MARKS[0]}{text}\n{MARKS[1]}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
