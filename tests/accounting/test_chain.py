import os

from tests.support.refusals import expect_refusal

from gossamer.accounting import chain
from gossamer.accounting.chain import LedgerError


def test_files_that_cannot_be_opened_are_a_sentence(tmp_path):
    with expect_refusal(key="none", names="file", error=LedgerError):
        chain.content(tmp_path / "none")
    with expect_refusal(key="none", names="file", error=LedgerError):
        chain.open_to_extend(tmp_path / "none", b"", b"", False)
    os.mkfifo(tmp_path / "pipe")
    with expect_refusal(key="pipe", names="regular", error=LedgerError):
        chain.content(tmp_path / "pipe")


def test_a_link_is_not_appended_to(tmp_path):
    (tmp_path / "file").write_text("x\n")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    with expect_refusal(key="link", names="written", error=LedgerError):
        chain.open_to_extend(tmp_path / "link", b"x\n", b"", False)
