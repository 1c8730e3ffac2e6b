"""The root of every error of this library, and the one that pure code raises.

They stand here, below everything, because a field already refuses values; ``retriever.errors``
grows the rest of the tree on them.
"""


class RetrieverError(Exception):
    """Root of all errors that this library raises itself."""


class InvalidInput(RetrieverError, ValueError):
    """What you passed cannot be right. Raised before any I/O where no server is needed to know."""
