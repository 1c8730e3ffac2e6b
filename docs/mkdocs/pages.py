"""Hooks of mkdocs: a page loads nothing from another host, and its Markdown is published beside it for agents."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

# What a browser fetches by itself; a link is followed by its reader.
_FETCHED = re.compile(r"<(?:(?:script|img|iframe|source)\b[^>]*\bsrc|link\b[^>]*\bhref)=\"?(?:https?:)?//")


def fetched(html: str) -> str | None:
    """The first tag of a page that a browser would fetch from another host; None if there is none."""
    found = _FETCHED.search(html)
    return found[0] if found else None


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Refuse a page that needs a network."""
    if (tag := fetched(output)) is not None:
        from mkdocs.exceptions import PluginError

        raise PluginError(f"{page.file.src_path} loads from another host: {tag}")
    return output


def on_post_build(config: Any, **_: Any) -> None:
    """Put each page's Markdown beside its HTML, where llms.txt says it is."""
    for source in Path(config.docs_dir).glob("*.md"):
        shutil.copy(source, config.site_dir)
