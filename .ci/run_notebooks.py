"""Run the notebooks from top to bottom, each in a folder of its own, and keep what they print."""

from __future__ import annotations

import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

for path in sorted((Path(__file__).parents[1] / "docs" / "notebooks").glob("*.ipynb")):
    book = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        NotebookClient(book, timeout=600, resources={"metadata": {"path": folder}}).execute()
    for cell in book.cells:
        cell.metadata.clear()  # when it was run
    book.metadata = {"kernelspec": book.metadata["kernelspec"], "language_info": {"name": "python"}}
    nbformat.write(book, path)
    print(path.name)
