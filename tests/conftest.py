"""The one server of a test run: VALKEY_URL's, or a real engine started for it.

Rule: no test flushes. Whoever makes an index makes it under a name of its own and removes it.
"""

from __future__ import annotations

import os
from functools import cache

import pytest
import valkey
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


@cache
def is_cluster(url):
    """Whether a server is a node of a cluster, as it says itself."""
    with valkey.Valkey.from_url(url) as client:
        said = client.execute_command("HELLO")
    return dict(zip(said[::2], said[1::2], strict=True))[b"mode"] == b"cluster"


@pytest.fixture(scope="session")
def clustered(url):
    """Whether the server of the test run is a node of a cluster."""
    return is_cluster(url)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Skip what is about one server (the mark ``one_server``) on a cluster, before any fixture asks it."""
    mark, given = item.get_closest_marker("one_server"), os.environ.get("VALKEY_URL")
    if mark is not None and given and is_cluster(given):
        pytest.skip(f"VALKEY_URL's server is a cluster: {mark.args[0]}")
