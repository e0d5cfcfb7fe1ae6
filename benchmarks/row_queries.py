"""Row changes as SQL queries over the views ``target`` and ``source``, for DuckDB and Spark."""

from __future__ import annotations

from benchmarks.data import COLUMNS
from benchmarks.job import KEY, Where

VALUE = "amount"
SEQUENCE = "ts"
SET = f"{VALUE} * 2"
"""The new value of an update. Doubling a number is exact, so all contenders have the same result."""
DELETE_WHEN = "op = 'd'"


def _plain(alias: str) -> str:
    return ", ".join(f"{alias}.{name}" for name in COLUMNS)


def _with_value(expression: str) -> str:
    return ", ".join(f"{expression} AS {name}" if name == VALUE else f"t.{name}" for name in COLUMNS)


_NEW = f"FROM source s LEFT JOIN target t ON t.{KEY} = s.{KEY} WHERE t.{KEY} IS NULL AND NOT s.{DELETE_WHEN}"
_JOINED = f"FROM target t LEFT JOIN source s ON t.{KEY} = s.{KEY}"
_CHOSEN = ", ".join(
    f"CASE WHEN s.{SEQUENCE} > t.{SEQUENCE} THEN s.{name} ELSE t.{name} END AS {name}" for name in COLUMNS
)
_STAYS = f"s.{KEY} IS NULL OR s.{SEQUENCE} <= t.{SEQUENCE} OR NOT s.{DELETE_WHEN}"
QUERIES = {
    "delete": f"SELECT {_plain('t')} FROM target t WHERE NOT ({{where}})",
    "update": f"SELECT {_with_value(f'CASE WHEN {{where}} THEN {SET} ELSE {VALUE} END')} FROM target t",
    "columns": f"SELECT {_with_value(f'coalesce(s.{VALUE}, t.{VALUE})')} {_JOINED}",
    "feed": f"SELECT {_CHOSEN} {_JOINED} WHERE {_STAYS} UNION ALL SELECT {_plain('s')} {_NEW}",
}
"""The rows after a change, by its name."""


def changed_rows(change: str, where: Where | None) -> str:
    """Return the query for the rows of the target after a change."""
    return QUERIES[change].format(where=where.sql if where else "")
