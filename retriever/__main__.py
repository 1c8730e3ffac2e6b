"""``retriever`` and ``python -m retriever``: the command line, if its packages are there."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line; without typer or rich, a sentence that says what to install and exit code 2."""
    try:
        from retriever.cli import run
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in ("typer", "rich"):
            raise
        sys.stderr.write(f"retriever needs {package}; pip install 'valkey-retriever[cli]'\n")
        raise SystemExit(2) from None
    run()


if __name__ == "__main__":
    main()
