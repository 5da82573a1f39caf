"""The notebooks run from top to bottom, and what is kept of them is small and of no machine."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "docs" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
LARGEST = 200_000  # bytes


@pytest.fixture(params=NOTEBOOKS, ids=lambda path: path.stem)
def notebook(request: pytest.FixtureRequest) -> Path:
    path: Path = request.param
    return path


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_notebook_runs_from_top_to_bottom(notebook: Path, tmp_path: Path) -> None:
    nbclient = pytest.importorskip("nbclient", reason="the extra dev is not installed")
    nbformat = pytest.importorskip("nbformat", reason="the extra dev is not installed")
    pytest.importorskip("ipykernel", reason="the extra dev is not installed")
    book = nbformat.read(notebook, as_version=4)
    nbclient.NotebookClient(book, timeout=600, resources={"metadata": {"path": str(tmp_path)}}).execute()


def test_a_notebook_is_kept_with_its_outputs_and_small(notebook: Path) -> None:
    text = notebook.read_text(encoding="utf-8")
    assert len(text.encode()) < LARGEST
    code = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
    assert code
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    assert not [output for cell in code for output in cell["outputs"] if output["output_type"] == "error"]


def test_a_notebook_names_no_machine(notebook: Path) -> None:
    assert re.findall(r"/(?:home|tmp|root|work|Users)/\S*", notebook.read_text(encoding="utf-8")) == []
