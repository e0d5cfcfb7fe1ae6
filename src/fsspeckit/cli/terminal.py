"""The only module that writes to standard output and standard error; control characters in names are escaped."""

from __future__ import annotations

import os
import sys
from typing import TextIO

from fsspeckit.common.text import printable


def put(text: str) -> None:
    """Write lines to standard output."""
    try:
        _write(sys.stdout, text)
    except BrokenPipeError:
        # The reader of the pipe has closed it; the command has done its work all the same.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def put_error(text: str) -> None:
    """Write lines to standard error; while bars are drawn, rich takes its place and prints above them."""
    _write(sys.stderr, text)


def _write(stream: TextIO, text: str) -> None:
    """Letters that the stream's encoding lacks are escaped too: a finished operation must not fail by its report."""
    encoding = stream.encoding or "utf-8"
    stream.write(printable(text.rstrip("\n"), keep="\n").encode(encoding, "backslashreplace").decode(encoding) + "\n")
    stream.flush()
