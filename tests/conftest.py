"""The one server of a test run: VALKEY_URL's, or a real engine started for it.

Rule: no test flushes. Whoever makes an index makes it under a name of its own and removes it.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

from retriever.embedded import EmbeddedServer
from retriever.errors import NotSupported

# No deadline: a server answers as fast as its machine is free. Printing the blob makes a failure repeatable.
settings.register_profile("retriever", deadline=None, print_blob=True)
settings.load_profile("retriever")


@pytest.fixture(scope="session")
def url():
    """The URL of a server with a search module. Without one its tests are skipped, and fail where CI is set."""
    given = os.environ.get("VALKEY_URL")
    if given:
        yield given
        return
    server = EmbeddedServer()
    try:
        started = server.start()
    except NotSupported as error:
        if os.environ.get("CI"):
            pytest.fail(f"no server, and CI may not do without: {error}")
        pytest.skip(str(error))
    yield started
    server.stop()
