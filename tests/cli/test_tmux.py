"""The command line in a terminal of tmux: what a person sees of bars, prompts and Ctrl-C, also in a narrow window."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fsspeckit.datasets.pyarrow import PyarrowDatasetIO

PROGRAM = shlex.join([sys.executable, "-m", "fsspeckit.cli"])
SLOW = "(until [ -e go ]; do sleep 0.1; done; cat rows.arrow) |"
"""Rows that come when the test creates the file `go`."""
COLOUR = re.compile(r"\x1b\[[0-9;]*\d+m")


class Terminal:
    """A shell in a window of tmux."""

    def __init__(self, tmux: str, folder: Path, columns: int) -> None:
        self.folder = folder
        self._words = [tmux, "-S", str(folder / "tmux"), "-f", os.devnull]
        env = {"FSSPECKIT_ENGINE": "pyarrow", "XDG_CONFIG_HOME": str(folder / "config")}
        settings = [word for name, value in env.items() for word in ("-e", f"{name}={value}")]
        size = ["-x", str(columns), "-y", "30"]
        self._tmux("new-session", "-d", *size, *settings, "-c", str(folder), "sh")

    def _tmux(self, *words: str) -> str:
        clean = {name: value for name, value in os.environ.items() if name not in ("TMUX", "NO_COLOR", "COLUMNS")}
        done = subprocess.run([*self._words, *words], capture_output=True, text=True, check=True, env=clean)
        return done.stdout

    def start(self, words: str, before: str = "") -> None:
        """Type a command; afterwards its exit code is on the screen."""
        self.type(f"{before} {PROGRAM} {words}; echo code $?")

    def type(self, text: str) -> None:
        self._tmux("send-keys", "-l", text)
        self.press("Enter")

    def press(self, key: str) -> None:
        self._tmux("send-keys", key)

    def screen(self, *options: str) -> str:
        """What the window shows; lines that were wrapped are joined."""
        return self._tmux("capture-pane", "-p", "-J", *options).rstrip("\n")

    def wait(self, pattern: str) -> str:
        """Wait until a pattern is on the screen, and return the screen."""
        until = time.monotonic() + 30
        while time.monotonic() < until:
            shown = self.screen()
            if re.search(pattern, shown, re.MULTILINE):
                return shown
            time.sleep(0.1)
        raise AssertionError(f"{pattern!r} was not shown:\n{self.screen()}")

    def result(self) -> str:
        """Wait for the end of a command, and return what is below the line that was typed."""
        shown = self.wait(r"^code \d+$")
        return shown.partition("echo code $?\n")[2].rpartition("\n>")[0].rstrip()

    def ready(self) -> None:
        """Wait for the shell."""
        self.type("PS1='> '; clear")
        self.wait(r"\A> *\Z")

    def close(self) -> None:
        self._tmux("kill-server")


@pytest.fixture
def window(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Terminal]:
    """A terminal beside a dataset of three rows, `lake`, and rows for it."""
    tmux = shutil.which("tmux")
    if tmux is None:
        pytest.skip("there is no tmux: install it, for example with `make tmux`")
    rows = pa.table({"id": range(3), "v": ["x"] * 3})
    PyarrowDatasetIO().write_dataset(rows, str(tmp_path / "lake"))
    with pa.ipc.new_stream(tmp_path / "rows.arrow", rows.schema) as writer:
        writer.write_table(rows)
    terminal = Terminal(tmux, tmp_path, getattr(request, "param", 100))
    try:
        terminal.ready()
        yield terminal
    finally:
        terminal.close()


def rows_left(window: Terminal) -> int:
    """Rows of all data files; without rows there is no file."""
    return sum(pq.read_metadata(path).num_rows for path in (window.folder / "lake").glob("*.parquet"))


QUESTION = "this deletes all 3 rows of lake, so no row is left. Go on? [y/N]:"


@pytest.mark.parametrize(("answer", "code", "left"), [("n", 1, 3), ("", 1, 3), ("maybe", 1, 3), ("y", 0, 0)])
def test_a_delete_of_everything_asks(window: Terminal, answer: str, code: int, left: int) -> None:
    window.start("delete lake --where true")
    window.wait(re.escape(QUESTION))
    assert rows_left(window) == 3
    window.type(answer)
    if answer == "maybe":
        window.wait("Error: invalid input")
        window.type("n")
    shown = window.result()
    assert shown.endswith(f"code {code}")
    assert rows_left(window) == left
    if code:
        assert "error: nothing was done\nto do: add --yes to go on without a question" in shown


def test_ctrl_c_at_the_question(window: Terminal) -> None:
    window.start("delete lake --where true")
    window.wait(re.escape(QUESTION))
    window.press("C-c")
    shown = window.wait(r"^>.*\Z")
    assert "Traceback" not in shown
    assert rows_left(window) == 3


@pytest.mark.parametrize("window", [100, 40], indirect=True)
def test_a_bar_is_drawn_and_removed(window: Terminal) -> None:
    window.start("write - lake", before=SLOW)
    shown = window.wait(r"write.*0:00:0[3-9]")
    assert len(re.findall(r"0:00:0", window.screen())) <= 2, shown  # elapsed and remaining, in one line
    assert COLOUR.search(window.screen("-e"))
    (window.folder / "go").touch()
    shown = window.result()
    assert re.fullmatch(r"mode +append\nrows +3\nfiles +1 written .*\nseconds .*\ncode 0", shown), shown
    assert rows_left(window) == 6
    assert window._tmux("display-message", "-p", "#{cursor_flag}").strip() == "1"


def test_ctrl_c_while_a_bar_is_drawn(window: Terminal) -> None:
    window.start("write - lake", before=SLOW)
    window.wait(r"write.*0:00:0[3-9]")
    window.press("C-c")
    shown = window.wait(r"^> *\Z")
    assert "Traceback" not in shown
    assert "0:00:0" not in shown
    assert "error: interrupted" in shown
    assert rows_left(window) == 3
    assert window._tmux("display-message", "-p", "#{cursor_flag}").strip() == "1"


def test_no_colours_if_they_are_not_wanted(window: Terminal) -> None:
    window.type("export NO_COLOR=1; clear")
    window.start("write - lake", before=SLOW)
    window.wait(r"write.*0:00:0[3-9]")
    assert COLOUR.search(window.screen("-e")) is None
    (window.folder / "go").touch()
    window.result()
    window.start("delete lake --where 'nothing = 1'")
    window.wait("unknown column")
    window.start("merge --help")
    window.wait("--strategy")
    assert COLOUR.search(window.screen("-e")) is None


def test_a_pipe_and_a_file_get_no_bars(window: Terminal) -> None:
    window.start("write - lake 2>err | cat >out", before=SLOW)
    time.sleep(6)
    (window.folder / "go").touch()
    assert window.result() == "code 0"
    assert (window.folder / "err").read_bytes() == b""
    assert b"\x1b" not in (window.folder / "out").read_bytes()
    assert (window.folder / "out").read_text().startswith("mode ")


@pytest.mark.parametrize("format_", ["csv", "json"])
def test_a_bar_shows_that_standard_input_is_read(window: Terminal, format_: str) -> None:
    (window.folder / "in.csv").write_text("id,v\n7,y\n")
    (window.folder / "in.json").write_text('{"id": 7, "v": "y"}\n')
    slow = f"(until [ -e go ]; do sleep 0.1; done; cat in.{format_}) |"
    window.start(f"write - lake --format {format_}", before=slow)
    window.wait(r"write: read stdin")
    (window.folder / "go").touch()
    assert window.result().endswith("code 0")
    assert "reading" not in window.screen()
