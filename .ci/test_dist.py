"""Is what others install what is here? Builds the source archive and the wheel, looks into both, and installs the wheel
into a clean environment of each Python of PYTHONS that is on this machine; there it is used from an empty folder.

A Python that is missing is skipped with a printed reason, and `--require 3.12` makes that an error. Exit 1: something
failed; its last lines are printed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from email.parser import Parser
from pathlib import Path

ROOT = Path(__file__).parent.parent
PYTHONS = ("3.11", "3.12", "3.13")
BUILD = "build==1.6.1"
EXTRAS = ("track", "mlflow", "peers")
# Tests that need no file of the repository but themselves, of every layer one.
SMOKE = (
    "tests/accounting/test_gaussian.py",
    "tests/config/test_layers.py",
    "tests/kernels/test_clipped_sum.py",
    "tests/results/test_words.py",
    "tests/training/test_certificates.py",
    "tests/topology/test_graph.py",
)
IMPORT_ALL = """
import importlib, pkgutil, gossamer
names = [m.name for m in pkgutil.walk_packages(gossamer.__path__, "gossamer.") if not m.name.endswith("__main__")]
for name in names:
    importlib.import_module(name)
assert "site-packages" in gossamer.__file__, gossamer.__file__
print(len(names), "modules imported")
"""


class FailedError(Exception):
    """One sentence, and the last lines of what failed."""


def say(text: str) -> None:
    print(f"test-dist: {text}", flush=True)


def call(*words: str | Path, folder: Path, what: str) -> str:
    """The output; nothing of this environment's own Python settings goes along."""
    settings = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "VIRTUAL_ENV"))}
    done = subprocess.run(
        [str(word) for word in words],
        check=False,
        cwd=folder,
        env=settings,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    if done.returncode:
        last = "\n".join(done.stdout.splitlines()[-25:])
        raise FailedError(f"{what} failed with {done.returncode}:\n{last}")
    return done.stdout


def environment(python: str | Path, folder: Path, *packages: str | Path) -> Path:
    """A new one with these packages; its folder of programs."""
    call(python, "-m", "venv", folder, folder=folder.parent, what=f"making {folder.name}")
    install(folder / "bin", *packages)
    return folder / "bin"


def install(bin_: Path, *packages: str | Path) -> None:
    quiet = ["--quiet", "--disable-pip-version-check", "-c", ROOT / "constraints.txt"]
    what = f"pip install {' '.join(str(package) for package in packages)}"
    call(bin_ / "python", "-m", "pip", "install", *quiet, *packages, folder=bin_, what=what)


def interpreter(version: str) -> Path | None:
    """A Python of that version which runs: on the path, or one of pyenv's."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = [shutil.which(f"python{version}"), *sorted(pyenv.glob(f"{version}.*/bin/python"), reverse=True)]
    ask = "import sys, venv; print('%d.%d' % sys.version_info[:2])"
    for python in filter(None, found):
        said = subprocess.run([python, "-c", ask], check=False, capture_output=True, text=True)
        if said.returncode == 0 and said.stdout.strip() == version:
            return Path(python)
    return None


def build(work: Path) -> tuple[Path, Path]:
    """From a copy of what git knows, so that nothing that happens to lie around gets in."""
    copy = work / "tree"
    tracked = call("git", "ls-files", "-z", folder=ROOT, what="git ls-files").split("\0")
    for name in filter(None, tracked):
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, copy / name)
    tools = environment(sys.executable, work / "tools", BUILD)
    call(tools / "python", "-m", "build", "--outdir", work / "dist", folder=copy, what="python -m build")
    (wheel,), (source,) = (work / "dist").glob("*.whl"), (work / "dist").glob("*.tar.gz")
    return wheel, source


def look_into(wheel: Path, source: Path) -> None:
    package = ROOT / "src" / "gossamer"
    inside = [path for path in package.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    wanted = {f"gossamer/{path.relative_to(package)}" for path in inside}
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if not name.endswith("/")}
        info = next(name.partition("/")[0] for name in names if ".dist-info/" in name)
        about = Parser().parsestr(archive.read(f"{info}/METADATA").decode())
    held = {name for name in names if not name.startswith(info)}
    if held != wanted:
        raise FailedError(f"{wheel.name} lacks {sorted(wanted - held)} and has besides {sorted(held - wanted)}")
    if f"{info}/licenses/LICENSE" not in names:
        raise FailedError(f"{wheel.name} has no LICENSE")
    for key, value in {
        "Name": "gossamer",
        "License-Expression": "Apache-2.0",
        "Requires-Python": ">=3.11",
    }.items():
        if about[key] != value:
            raise FailedError(f"{wheel.name} says {key}: {about[key]} where {value} is meant")
    with tarfile.open(source) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    for name in ("LICENSE", "README.md", "tests/test_cli.py", "docs/privacy.md", "constraints.txt"):
        if name not in packed:
            raise FailedError(f"{source.name} lacks {name}")
    tomls = sum(name.endswith(".toml") for name in held)
    say(
        f"{wheel.name}: {len(held)} files, {tomls} of them recipes and papers, no tests; "
        f"{source.name}: {len(packed)} names"
    )


def use(python: Path, version: str, wheel: Path, work: Path) -> None:
    begun = time.monotonic()
    bin_ = environment(python, work / f"python{version}", wheel, "pytest", "hypothesis")
    for extra in EXTRAS:  # by the name that messages print
        install(bin_, f"gossamer[{extra}]", "--dry-run")
    empty = work / f"empty{version}"
    empty.mkdir()
    gossamer = bin_ / "gossamer"
    say(call(bin_ / "python", "-c", IMPORT_ALL, folder=empty, what="importing every module").strip())
    words = [["recipes"], ["data", "list"], ["run", "quickstart", "--set", "rounds=20", "--out", "run"]]
    words += [["plan", "--ledger", "run"], ["report", "run"], ["certificate", "verify", "run"]]
    if "--version" in call(gossamer, "--help", folder=empty, what="gossamer --help"):
        words.append(["--version"])
    for command in words:
        call(gossamer, *command, folder=empty, what=f"gossamer {' '.join(command)}")
    shutil.copytree(ROOT / "tests", empty / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", empty)
    tested = call(bin_ / "python", "-m", "pytest", "-q", *SMOKE, folder=empty, what="the smoke tests")
    say(f"Python {version}: {len(words) + 1} commands and {_passed(tested)} in {time.monotonic() - begun:.0f} s")


def _passed(output: str) -> str:
    dots = sum(line.split("[")[0].count(".") for line in output.splitlines() if line.rstrip().endswith("%]"))
    return f"{dots} smoke tests"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--require", action="append", default=[], help="a Python that must not be skipped")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        try:
            wheel, source = build(work)
            look_into(wheel, source)
            for version in PYTHONS:
                python = interpreter(version)
                if python is not None:
                    use(python, version, wheel, work)
                elif version in asked.require:
                    raise FailedError(f"Python {version} is required, and there is none on this machine")
                else:
                    say(f"Python {version}: skipped, there is no python{version} that runs on this machine")
        except FailedError as failed:
            say(str(failed))
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
