"""What a text in Spark SQL reads: tables, files and functions, from the tree of Spark's own parser.

A file that is not trusted may read only the names that it declares. Because the tree comes from the parser that runs
the query, no spelling can hide a table. A node that is not known to be harmless counts as one that reads something
else.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, Literal

from fsspeckit.pipeline.queries import wrapped

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PLAN = "org.apache.spark.sql.catalyst.plans.logical.LogicalPlan"
_TYPES = "org.apache.spark.sql.types."
_HARMLESS = frozenset(
    (
        *("Aggregate", "Deduplicate", "Distinct", "Except", "Filter", "Generate", "GlobalLimit", "Intersect", "Join"),
        *("LateralJoin", "LocalLimit", "Offset", "OneRowRelation", "OneRowRelation$", "Pivot", "Project", "Range"),
        *("RepartitionByExpression", "ResolvedInlineTable", "Sample", "Sort", "SubqueryAlias", "Tail", "Transpose"),
        *("LocalRelation", "PipeOperator", "Union", "UnionLoop", "Unpivot", "UnresolvedHaving", "UnresolvedHint"),
        *("UnresolvedOrderBy", "UnresolvedPivot", "UnresolvedSubqueryColumnAliases", "UnresolvedTranspose"),
        *(
            "UnresolvedInlineTable",
            "UnresolvedTVFAliases",
            "UnresolvedTableValuedFunction",
            "UnresolvedWith",
            "Window",
            "WithCTE",
            "WithWindowDefinition",
        ),
    )
)
_VIEW = "fsspeckit_view"
_CALLS = frozenset(("reflect", "try_reflect", "java_method"))


def reads_elsewhere(
    spark: SparkSession, text: str, kind: Literal["query", "expression"], names: Collection[str]
) -> str | None:
    """Return what a text reads beyond the given names; None if nothing. Classic Spark only."""
    from pyspark.errors import ParseException

    parser = spark._jsparkSession.sessionState().sqlParser()
    try:
        if kind == "query":  # the text that runs: a parenthesis in a query could end the one around it
            tree = parser.parsePlan(wrapped(text, dict.fromkeys(names, _VIEW)))
        else:
            tree = parser.parseExpression(text)
    except ParseException:
        return None  # Spark refuses the query too, with the place of the error
    exact = str(spark.conf.get("spark.sql.caseSensitive")).lower() == "true"
    return _Walk(spark._jvm, str if exact else str.lower).first(tree)


class _Walk:
    """Visits every part of a tree: children, subqueries, common table expressions, and whatever a node consists of.

    Common table expressions are visible where Spark sees them: in the query behind them, and in those after them.
    """

    def __init__(self, jvm: Any, fold: Callable[[str], str]) -> None:
        classes = jvm.java.lang.Class
        self._plan, self._product = classes.forName(_PLAN), classes.forName("scala.Product")
        self._iterable, self._fold = classes.forName("scala.collection.Iterable"), fold

    def first(self, root: Any) -> str | None:
        """Return the first thing that is read beyond the tables of the query itself."""
        left: list[tuple[Any, frozenset[str]]] = [(root, frozenset((_VIEW,)))]
        while left:
            node, tables = left.pop()
            if not hasattr(node, "getClass"):  # py4j converts texts and numbers
                continue
            full = node.getClass().getName()
            if full.startswith(_TYPES):
                continue
            if self._iterable.isInstance(node):
                left += [(each, tables) for each in _items(node.iterator())]
            elif self._product.isInstance(node):
                name = full.rpartition(".")[2]
                reason = self._reason(name, node, tables)
                if reason is not None:
                    return reason
                parts = self._with(node, tables) if name == "UnresolvedWith" else None
                left += parts or [(each, tables) for each in _items(node.productIterator())]
        return None

    def _with(self, node: Any, tables: frozenset[str]) -> list[tuple[Any, frozenset[str]]]:
        parts = []
        recursive = bool(node.allowRecursion()) if hasattr(node, "allowRecursion") else False
        for each in _items(node.cteRelations().iterator()):
            own = tables | {self._fold(each._1())}
            parts.append((each._2(), own if recursive else tables))
            tables = own
        return [*parts, (node.child(), tables)]

    def _reason(self, name: str, node: Any, tables: Collection[str]) -> str | None:
        if name == "UnresolvedRelation":
            parts = [str(part) for part in _items(node.multipartIdentifier().iterator())]
            known = len(parts) == 1 and self._fold(parts[0]) in tables
            return None if known else f"it reads {'.'.join(parts)!r}, which is not in 'from'"
        if name == "UnresolvedFunction":
            parts = [str(part) for part in _items(node.nameParts().iterator())]
            is_call = not parts or parts[-1].lower() in _CALLS
            return f"the function {'.'.join(parts)} calls any method of Java" if is_call else None
        if self._plan.isInstance(node) and name not in _HARMLESS:
            return f"it has a part that is not known to be harmless ({name})"
        return None


def _items(iterator: Any) -> list[Any]:
    found = []
    while iterator.hasNext():
        found.append(iterator.next())
    return found
