"""The exception for mistakes a user can make, and the one for a wish to stop. A leaf: every package may import it."""


class UserError(ValueError):
    """One sentence that names the key, the value and what would be right.

    The command line prints the sentence without a traceback and exits with 2.
    """


class StoppedError(Exception):
    """The user stopped the command; the text says how to go on. Exit 130.

    Not a KeyboardInterrupt: the command line's library would swallow that and its text.
    """
