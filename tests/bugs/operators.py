"""Small changes to a module, found by its syntax tree: what a careless edit could do."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterator
from dataclasses import dataclass

_SWAPS: dict[type[ast.cmpop], str] = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==",
    ast.Is: "is not", ast.IsNot: "is", ast.In: "not in", ast.NotIn: "in",
}  # fmt: skip
_ARITHMETIC: dict[type[ast.operator], str] = {
    ast.Add: "-", ast.Sub: "+", ast.Mult: "+", ast.FloorDiv: "*", ast.Mod: "*", ast.BitAnd: "|", ast.BitOr: "&",
}  # fmt: skip
_NAMES = {"min": "max", "max": "min", "any": "all", "all": "any", "sorted": "list"}
_EMPTY = {"bool": ("True", "False"), "int": ("0",), "str": ("''",), "list": ("[]",), "tuple": ("()",), "dict": ("{}",)}
_UNTESTED = ("__repr__", "__str__", "_repr_html_")


@dataclass(frozen=True, slots=True)
class Mutant:
    """A change to one place of a module: some bytes are replaced."""

    file: str
    function: str
    line: int
    kind: str
    start: int
    end: int
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line} {self.kind}"

    def apply(self, source: str) -> str:
        """Return the source with the change."""
        data = source.encode()
        return (data[: self.start] + self.text.encode() + data[self.end :]).decode()

    def diff(self, source: str) -> str:
        """Return the changed lines."""
        pair = source.splitlines(), self.apply(source).splitlines()
        lines = list(difflib.unified_diff(*pair, n=0, lineterm=""))[3:]
        return "\n".join(f"    {line}" for line in lines)


def mutants_of(file: str, source: str) -> list[Mutant]:
    """Return all changes to a module; a few of them are not valid Python."""
    finder = _Finder(file, source)
    finder.visit(ast.parse(source))
    return finder.found


def is_valid(source: str) -> bool:
    """Whether a changed module is valid Python."""
    try:
        compile(source, "", "exec")
    except (SyntaxError, ValueError):
        return False
    return True


def outermost(qualname: str) -> str:
    """The function or method that a nested function, a lambda or a comprehension is in."""
    return qualname.partition(".<locals>")[0].removesuffix(".<lambda>")


def functions_of(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef]]:
    """The functions of a module and the methods of its classes, with their qualified names."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            yield node.name, node
        elif isinstance(node, ast.ClassDef):
            yield from ((f"{node.name}.{each.name}", each) for each in node.body if isinstance(each, ast.FunctionDef))


class Places:
    """Finds the bytes of a node in a source."""

    def __init__(self, source: str) -> None:
        self._starts = [0]
        for line in source.encode().splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        first, last = self._starts[node.lineno - 1], self._starts[node.end_lineno - 1]
        return first + node.col_offset, last + node.end_col_offset


class _Finder(ast.NodeVisitor):
    """Collects changes. Annotations, decorators, messages of errors and calls of a logger are left alone."""

    def __init__(self, file: str, source: str) -> None:
        self.file, self.places, self.found = file, Places(source), list[Mutant]()
        self.names: list[str] = []
        self.returns = ""

    def add(self, node: ast.expr | ast.stmt, text: str, kind: str) -> None:
        start, end = self.places.span(node)
        text = f"({text})" if isinstance(node, ast.expr) else text
        self.found.append(Mutant(self.file, ".".join(self.names[:2]), node.lineno, kind, start, end, text))

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        if node.name in _UNTESTED:
            return
        outer = self.names, self.returns
        nested = self.names and not self.names[-1][:1].isupper() and self.names[-1].lstrip("_")[:1].islower()
        self.names = self.names if nested else [*self.names, node.name]
        self.returns = ast.unparse(node.returns).partition("[")[0] if node.returns else ""
        self._visit_all(node.body)
        self.names, self.returns = outer

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        outer, self.names = self.names, [*self.names, node.name]
        self._visit_all(node.body)
        self.names = outer

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None and self.names and not self.names[-1].lstrip("_")[:1].isupper():
            self.visit(node.value)

    def visit_Assert(self, node: ast.Assert) -> None:
        return

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        return

    def visit_Raise(self, node: ast.Raise) -> None:
        self.add(node, "pass", "error dropped")

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Constant):
            return
        if isinstance(node.value, ast.Call) and ast.unparse(node.value.func).startswith("_logger."):
            return
        self.add(node, "pass", "statement dropped")
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self.add(node, "pass", "statement dropped")
        self.generic_visit(node)

    def visit_Continue(self, node: ast.Continue) -> None:
        self.add(node, "pass", "continue dropped")

    def visit_If(self, node: ast.If) -> None:
        if ast.unparse(node.test) == "TYPE_CHECKING":
            return
        self.add(node.test, f"not ({ast.unparse(node.test)})", "condition negated")
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self.add(node.test, f"not ({ast.unparse(node.test)})", "condition negated")
        self.generic_visit(node)

    def visit_With(self, node: ast.With) -> None:
        for item in node.items:
            if item.optional_vars is None:
                self.add(item.context_expr, "__import__('contextlib').nullcontext()", "context dropped")
        self.generic_visit(node)

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is None:
            return
        now = ast.unparse(node.value)
        for text in _EMPTY.get(self.returns, ("None",)):
            if text != now:
                self.add(node, f"return {text}", f"returns {text}")
        self.visit(node.value)

    def visit_Compare(self, node: ast.Compare) -> None:
        if len(node.ops) == 1:
            left, right = ast.unparse(node.left), ast.unparse(node.comparators[0])
            self.add(node, f"({left}) {_SWAPS[type(node.ops[0])]} ({right})", "comparison changed")
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        self.add(node, ast.unparse(ast.BoolOp(other, node.values)), "and, or")
        for number in range(len(node.values)):
            left = node.values[:number] + node.values[number + 1 :]
            text = ast.unparse(ast.BoolOp(node.op, left) if len(left) > 1 else left[0])
            self.add(node, text, "part of a condition dropped")
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not | ast.Invert):
            self.add(node, ast.unparse(node.operand), "not dropped")
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        sides = (node.left, node.right)
        texts = any(isinstance(each, ast.JoinedStr | ast.List | ast.Tuple) for each in sides)
        texts |= any(isinstance(each, ast.Constant) and isinstance(each.value, str | bytes) for each in sides)
        if type(node.op) in _ARITHMETIC and not texts:
            left, right = (f"({ast.unparse(each)})" for each in sides)
            self.add(node, f"{left} {_ARITHMETIC[type(node.op)]} {right}", "operator changed")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self.add(node, str(not node.value), "flag changed")
        elif isinstance(node.value, int):
            self.add(node, str(node.value + 1), "off by one")

    def visit_Slice(self, node: ast.Slice) -> None:
        for bound in (node.lower, node.upper):
            if bound is not None:
                self.add(bound, f"({ast.unparse(bound)}) + 1", "slice moved")
        self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        for condition in node.ifs:
            self.add(condition, "True", "filter dropped")
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Name) and node.func.id in _NAMES and not node.keywords:
            self.add(node.func, _NAMES[node.func.id], "another function")
        for number, keyword in enumerate(node.keywords):
            if keyword.arg is not None:
                left = node.keywords[:number] + node.keywords[number + 1 :]
                self.add(node, ast.unparse(ast.Call(node.func, node.args, left)), f"argument {keyword.arg} dropped")
        self.generic_visit(node)

    def _visit_all(self, nodes: list[ast.stmt]) -> None:
        for node in nodes:
            self.visit(node)
