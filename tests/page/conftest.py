"""Tests of the report's page in a real browser; ``make test-page`` makes an environment that has what they need.

They are collected only there. The browser is the one that CHROMIUM names, else one in PATH, else the one that
``playwright install --only-shell chromium`` has fetched.
"""

from __future__ import annotations

import importlib.util
import os
import shutil

import pytest

if importlib.util.find_spec("playwright") is None:
    collect_ignore_glob = ["test_*.py"]

BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="session")
def browser():
    """A headless Chromium, at the end closed."""
    from playwright.sync_api import sync_playwright

    path = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, BROWSERS)), None)
    # Chromium refuses to run as root with its sandbox; the pages are ours.
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"] if os.getuid() == 0 else [])
        yield browser
        browser.close()
