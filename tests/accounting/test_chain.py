import os

import pytest

from gossamer.accounting import chain
from gossamer.accounting.chain import LedgerError


def test_files_that_cannot_be_opened_are_a_sentence(tmp_path):
    with pytest.raises(LedgerError, match="cannot be read: No such file"):
        chain.content(tmp_path / "none")
    with pytest.raises(LedgerError, match="cannot be written: No such file"):
        chain.open_to_extend(tmp_path / "none", b"", b"", False)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(LedgerError, match="not a regular file"):
        chain.content(tmp_path / "pipe")


def test_a_link_is_not_appended_to(tmp_path):
    (tmp_path / "file").write_text("x\n")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    with pytest.raises(LedgerError, match="cannot be written"):
        chain.open_to_extend(tmp_path / "link", b"x\n", b"", False)
