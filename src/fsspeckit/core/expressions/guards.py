"""Evaluate the parts of AND, OR, CASE and COALESCE only for the rows that need them.

So the first part of ``b <> 0 AND a / b > 1`` guards the division. It takes longer than to evaluate all parts for all
rows, so it is used only where that fails.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fsspeckit.common.bridge import scalar, to_arrow, to_numpy
from fsspeckit.core.expressions.tree import Call, Expression

Mask = npt.NDArray[np.bool_]
Evaluate = Callable[[Expression, pa.Table], pa.Array]
"""Returns the value of an expression for each row of a table."""


def _connected(call: Call, table: pa.Table, evaluate: Evaluate) -> pa.Array:
    """AND and OR: a part is needed where the parts before it do not decide the result."""
    join, deciding = (pc.and_kleene, False) if call.function == "and" else (pc.or_kleene, True)
    found = pa.repeat(scalar(not deciding), table.num_rows)
    for part in call.arguments:
        is_open = to_numpy(pc.fill_null(pc.not_equal(found, scalar(deciding)), scalar(True)))
        found = join(found, _for_rows(part, table, is_open, evaluate))
    return found


def _case(call: Call, table: pa.Table, evaluate: Evaluate) -> pa.Array:
    *branches, default = call.arguments
    found = pa.nulls(table.num_rows, call.type)
    is_open = np.ones(table.num_rows, dtype=bool)
    for condition, value in zip(branches[::2], branches[1::2], strict=True):
        holds = pc.fill_null(_for_rows(condition, table, is_open, evaluate), scalar(False))
        found = pc.if_else(holds, _for_rows(value, table, to_numpy(holds), evaluate), found)
        is_open = is_open & ~to_numpy(holds)
    return pc.if_else(to_arrow(is_open), _for_rows(default, table, is_open, evaluate), found)


def _coalesce(call: Call, table: pa.Table, evaluate: Evaluate) -> pa.Array:
    found = pa.nulls(table.num_rows, call.type)
    for value in call.arguments:
        found = pc.coalesce(found, _for_rows(value, table, to_numpy(found.is_null()), evaluate))
    return found


def _for_rows(expression: Expression, table: pa.Table, rows: Mask, evaluate: Evaluate) -> pa.Array:
    """Evaluate an expression for some rows. The value for the others is NULL."""
    if not rows.any():
        return pa.nulls(table.num_rows, expression.type)
    values = evaluate(expression, table.filter(to_arrow(rows)))
    return values.take(to_arrow(np.cumsum(rows) - 1, rows))


GUARDED = {"and": _connected, "or": _connected, "case": _case, "coalesce": _coalesce}
"""Operators that do not need all their parts for all rows."""
