"""Real faults for the Python workers of executors: put into their environment as ``sitecustomize``.

Each token is a file in the folder of faults. A worker that has a staged file open takes one, and then kills itself
(``kill.*``) or stops dead (``stop.*``); nothing of fsspeckit is replaced.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time

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


def watch() -> None:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        for number in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):
                if os.readlink(f"/proc/self/fd/{number}").endswith(".staged"):
                    return strike()
        time.sleep(0.001)
    return None


def on_event(event: str, arguments: tuple[object, ...]) -> None:
    """Work for fsspeckit begins with unpickling it."""
    if event != "pickle.find_class" or not str(arguments[0]).startswith("fsspeckit"):
        return
    with contextlib.suppress(OSError):
        tokens = [name for name in os.listdir(FAULTS) if name.partition(".")[0] in SIGNALS]
        if tokens and not any(thread.name == "faults" for thread in threading.enumerate()):
            threading.Thread(target=watch, name="faults", daemon=True).start()


sys.addaudithook(on_event)
