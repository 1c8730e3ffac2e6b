"""The root of every error of this library, and the one that pure code raises.

They stand here, below everything, because a field already refuses values; ``retriever.errors``
grows the rest of the tree on them.
"""

_LONGEST, _HEAD, _TAIL = 1000, 500, 200  # characters of a message; arbitrary


class RetrieverError(Exception):
    """Root of all errors that this library raises itself."""


class InvalidInput(RetrieverError, ValueError):
    """What you passed cannot be right. Raised before any I/O where no server is needed to know.

    The message shows what was passed, cut to a size that a log can hold.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message if len(message) <= _LONGEST else f"{message[:_HEAD]} [...] {message[-_TAIL:]}")
