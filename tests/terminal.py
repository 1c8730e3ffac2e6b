"""Running the command ``retriever`` in tests: in this process, in one of its own, in a terminal."""

from __future__ import annotations

import fcntl
import io
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
from contextlib import redirect_stderr, redirect_stdout
from unittest.mock import patch

import pytest

RETRIEVER = [sys.executable, "-m", "retriever"]


def run(*args, url=None, input="", **environment):
    """Run in this process, whose imports are done; what a process of its own would give."""
    from retriever import cli  # needs typer and rich

    before = signal.getsignal(signal.SIGTERM)
    stdin = io.TextIOWrapper(io.BytesIO(input.encode(errors="surrogateescape")))
    with (
        patch.dict(os.environ, {"VALKEY_URL": url or "", **environment}),
        patch.object(sys, "argv", ["retriever", *args]),
        patch.object(sys, "stdin", stdin),
        redirect_stdout(io.StringIO()) as out,
        redirect_stderr(io.StringIO()) as err,
        pytest.raises(SystemExit) as ended,
    ):
        cli.run()
    signal.signal(signal.SIGTERM, before)
    return subprocess.CompletedProcess(args, ended.value.code, out.getvalue(), err.getvalue())


def answer(done):
    """The JSON that a command printed, if it went well and had nothing else to say."""
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


def in_terminal(*args, columns, typed=b""):
    """Run in a terminal of that width. Gives the exit code, and what was written, without colours."""
    pid, terminal = pty.fork()
    if not pid:
        for name in ("VALKEY_URL", "NO_COLOR", "COLUMNS"):
            os.environ.pop(name, None)
        os.environ["TERM"] = "xterm"
        # Set by the child: the parent might be too late, and the width is asked for at once.
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        os.execv(RETRIEVER[0], [*RETRIEVER, *args])
    os.write(terminal, typed)
    written = b""
    while True:
        try:
            read = os.read(terminal, 65536)
        except OSError:  # the other end is closed
            break
        if not read:
            break
        written += read
    os.close(terminal)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return code, re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", written.decode())
