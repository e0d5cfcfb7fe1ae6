"""The inside of the command line and of pipelines, as far as tests need it; `inside.py` has that of the library.

They are apart because environments with older packages have neither.
"""

from __future__ import annotations

from fsspeckit.cli import sources
from fsspeckit.cli.options import OPERATIONS as CLI_OPERATIONS
from fsspeckit.cli.plan_files import SavedPlan, read_plan
from fsspeckit.cli.wording import as_options
from fsspeckit.pipeline.trust import has_query, is_harmless, is_plain_path, runs_code
from fsspeckit.pipeline.wording import as_keys

__all__ = [
    "CLI_OPERATIONS", "SavedPlan", "as_keys", "as_options", "has_query", "is_harmless", "is_plain_path", "read_plan",
    "runs_code",
]  # fmt: skip


def forget_standard_input() -> None:
    """Let the next command in this process read standard input again."""
    sources.spooled_stdin.cache_clear()
