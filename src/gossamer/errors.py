"""The one exception for mistakes a user can make. A leaf: every package may import it."""


class UserError(ValueError):
    """One sentence that names the key, the value and what would be right.

    The command line prints the sentence without a traceback and exits with 2.
    """
