"""Real faults for the Python workers of executors: put into their environment as ``sitecustomize``.

Each token is a file in the folder of faults. A worker that has a staged file open takes one, and then kills itself
(``kill.*``) or stops dead (``stop.*``); nothing of fsspeckit is replaced.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from types import FrameType

FAULTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "faults")
SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}


def strike() -> None:
    """Take the first token and do what it says; it keeps the name of its victim."""
    for token in sorted(os.listdir(FAULTS)):
        kind = token.partition(".")[0]
        if kind in SIGNALS:
            with contextlib.suppress(FileNotFoundError):
                os.rename(f"{FAULTS}/{token}", f"{FAULTS}/struck-{kind}.{os.getpid()}.{time.time_ns()}")
                os.kill(os.getpid(), SIGNALS[kind])
                return


class Watch:
    """Looks on while work runs, and strikes when a staged file has got its first bytes."""

    def __init__(self) -> None:
        self.staged = ""

    def __call__(self, frame: FrameType, event: str, _argument: object) -> None:
        if event == "return" and frame.f_code.co_name == "open_output":
            self.staged = str(frame.f_locals["path"])
        if self.staged.endswith(".staged"):
            with contextlib.suppress(OSError):
                if os.stat(self.staged).st_size:
                    self.staged = ""
                    strike()


def on_event(event: str, arguments: tuple[object, ...]) -> None:
    """Work for fsspeckit begins with unpickling it."""
    if event != "pickle.find_class" or not str(arguments[0]).startswith("fsspeckit"):
        return
    with contextlib.suppress(OSError):
        if any(name.partition(".")[0] in SIGNALS for name in os.listdir(FAULTS)) and sys.getprofile() is None:
            sys.setprofile(Watch())


sys.addaudithook(on_event)
