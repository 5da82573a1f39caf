"""The reproduction book: results of the papers' tables and figures, their verdicts, pages and drawings."""
