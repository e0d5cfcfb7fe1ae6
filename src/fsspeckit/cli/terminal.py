"""The only module that writes to standard output and standard error; control characters in names are escaped."""

from __future__ import annotations

import os
import sys
from typing import TextIO

from fsspeckit.common.text import printable


def put(text: str) -> None:
    """Write lines to standard output; raise `OSError` if that fails. A closed pipe is not an error."""
    try:
        _write(sys.stdout, text)
    except OSError as error:
        # The rest of the buffer would fail again when the process exits.
        discard(sys.stdout)
        if not isinstance(error, BrokenPipeError):
            raise OSError(f"cannot write to standard output: {error.strerror}; send it elsewhere") from error


def put_error(text: str) -> None:
    """Write lines to standard error; while progress bars are shown, rich replaces it and prints above them."""
    try:
        _write(sys.stderr, text)
    except OSError:
        discard(sys.stderr)


def discard(stream: TextIO) -> None:
    """Redirect a stream to the null device, including its buffered data."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stream.fileno())
    os.close(null)


def open_closed_streams() -> None:
    """Open closed standard streams; otherwise a data file could get descriptor 1 or 2 and receive log output."""
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
            setattr(sys, name, open(number, mode, closefd=False))  # noqa: SIM115 - as Python opens its own


def _write(stream: TextIO, text: str) -> None:
    """Write text; escape characters that the encoding lacks, so that printing a result does not fail."""
    encoding = stream.encoding or "utf-8"
    stream.write(printable(text.rstrip("\n"), keep="\n").encode(encoding, "backslashreplace").decode(encoding) + "\n")
    stream.flush()
