"""The only module that writes to standard output and standard error; control characters in names are escaped."""

from __future__ import annotations

import os
import sys
from typing import TextIO

from fsspeckit.common.text import printable


def put(text: str) -> None:
    """Write lines to standard output; `OSError` where it takes none. A reader that closed its pipe is no error."""
    try:
        _write(sys.stdout, text)
    except OSError as error:
        # What is left in the buffer would fail again when the process ends.
        discard(sys.stdout)
        if not isinstance(error, BrokenPipeError):
            raise OSError(f"cannot write to standard output: {error.strerror}; send it elsewhere") from error


def put_error(text: str) -> None:
    """Write lines to standard error; while bars are drawn, rich takes its place and prints above them."""
    try:
        _write(sys.stderr, text)
    except OSError:
        discard(sys.stderr)


def discard(stream: TextIO) -> None:
    """Send what a stream still holds, and all that follows, nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def open_closed_streams() -> None:
    """Open streams that the caller closed: a data file that got their number would be written to by libraries."""
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
            setattr(sys, name, open(number, mode, closefd=False))  # noqa: SIM115 - as Python opens its own


def _write(stream: TextIO, text: str) -> None:
    """Letters that the stream's encoding lacks are escaped too: a finished operation must not fail by its report."""
    encoding = stream.encoding or "utf-8"
    stream.write(printable(text.rstrip("\n"), keep="\n").encode(encoding, "backslashreplace").decode(encoding) + "\n")
    stream.flush()
