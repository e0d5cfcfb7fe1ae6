"""Bugs with names: that somebody made once, or that the protocol of a commit must not have.

A bug is one change in one function. It is found by the name of the function and the syntax tree of what it replaces, so
it survives that code is formatted, moved to another module, or changed around it.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from bugs.operators import Mutant, Places, functions_of

OPERATIONS = ("tests/core/operations",)
COMMIT = ("tests/core/commit",)
LATER_GROUPS = ("tests/core/parquet/test_later_row_groups.py", "tests/conformance/test_foreign_files.py")
PLANNING = ("tests/core/planning",)
VALUES = ("tests/core/values",)
CLI = ("tests/cli",)
EXCHANGED = ("tests/core/operations/test_exchanged_merge.py",)
ROW_CHANGES = ("tests/conformance/test_row_changes.py",)
PROTOCOL = ("tests/core/commit/test_protocol.py",)
LATE = ("tests/faults/test_late_copies.py",)
TRANSACTION = ("tests/core/commit/test_transaction.py",)
CONCURRENT = ("tests/core/operations/test_concurrent_commits.py",)
SWEEPS = (
    "tests/faults/test_verb_faults.py",
    "tests/faults/test_kept_versions.py",
    "tests/faults/test_publish_modes.py",
)
POWER = ("tests/faults/test_power_loss.py",)


@dataclass(frozen=True, slots=True)
class Bug:
    """A replacement of one expression or statement of a function, and the tests that must notice it.

    Without ``old``, the body of the function is replaced; ``...`` in ``new`` stands for the body.
    """

    name: str
    function: str
    old: str
    new: str
    tests: tuple[str, ...]

    def seed(self, sources: dict[str, str]) -> Mutant:
        """Find the place in the modules of the package. Raise if there is none, or more than one."""
        found = [each for file, source in sources.items() for each in self._places(file, source)]
        if len(found) != 1:
            raise LookupError(
                f"{self.name}: {self.function} has {len(found)} places of {self.old or 'its body'!r}, not one"
            )
        return found[0]

    def _places(self, file: str, source: str) -> Iterator[Mutant]:
        name = self.function.rpartition(".")[2]
        if f"def {name}(" not in source:
            return
        wanted = ast.dump(_tree(self.old)) if self.old else ""
        for function, node in _functions(source):
            if function == self.function and self.old:
                for each in ast.walk(node):
                    if isinstance(each, ast.expr | ast.stmt) and ast.dump(each) == wanted:
                        text = f"({self.new})" if isinstance(each, ast.expr) else self.new
                        yield Mutant(file, function, each.lineno, self.name, *Places(source).span(each), text)
            elif function == self.function:
                yield Mutant(file, function, node.lineno, self.name, *Places(source).span(node), self._with_body(node))

    def _with_body(self, node: ast.FunctionDef) -> str:
        changed, body = copy.deepcopy(node), list[ast.stmt]()
        for each in ast.parse(self.new).body:
            is_rest = isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant) and each.value.value is ...
            body += node.body if is_rest else [each]
        changed.body, changed.decorator_list = body, []
        text = ast.unparse(changed).splitlines()
        return ("\n" + " " * node.col_offset).join(text)


@cache
def _functions(source: str) -> list[tuple[str, ast.FunctionDef]]:
    return list(functions_of(ast.parse(source)))


def _tree(text: str) -> ast.AST:
    """The syntax tree of an expression or a statement."""
    statement = ast.parse(text).body[0]
    return statement.value if isinstance(statement, ast.Expr) else statement


def sources_of(package: Path) -> dict[str, str]:
    """The modules of a package, by path."""
    return {path.relative_to(package).as_posix(): path.read_text() for path in sorted(package.rglob("*.py"))}


# fmt: off
BUGS: tuple[Bug, ...] = (
    Bug("deduplicate: the files of winners may change", "MaintenanceRun.commit",
        "[file for file in self.snapshot.files if file.path not in handled] if exclusive else []", "[]", OPERATIONS),
    Bug("maintenance: files may change between two commits", "MaintenanceRun._view",
        "[file.path for file in files if listed.get(file.path) != (file.size, file.stamp)]", "[]", OPERATIONS),
    Bug("deduplicate: others may commit between two commits", "MaintenanceRun._view",
        "changed or (exclusive and view.head != self.commits[-1])", "changed", OPERATIONS),
    Bug("write: overwrite_partitions without the complete view", "_Work.changes", "mode != 'append'",
        "mode == 'overwrite'", OPERATIONS),
    Bug("commit: an input of the same size counts as unchanged", "Identity.matches",
        "entry is not None and entry.size == self.size and (entry.stamp == self.stamp)",
        "entry is not None and entry.size == self.size", OPERATIONS),
    Bug("plan: the counts of a plan are not compared", "check_against_plan", "count != getattr(plan, name)",
        "count < 0", OPERATIONS),
    Bug("optimize: the files of winners may change during a sort", "_sort", "bool(work.duplicates)", "False",
        OPERATIONS),
    Bug("commit: an idempotency key is looked for in ten records", "Memory._records", "self._log.effective(state)",
        "self._log.effective(state)[-10:]", COMMIT),
    Bug("commit: files that a pending commit retires are still listed", "_assemble",
        "{path: file for path, file in files.items() if path not in retired}", "dict(files)", SWEEPS),
    Bug("commit: a replay replaces a file that was changed since", "Replayer._path_for",
        "item.replaces.matches(current)", "True", PROTOCOL),
    Bug("storage: the time of a local file does not count", "_stamp", "f'{info.st_mtime_ns}:{info.st_ino}'",
        "f'{info.st_ino}'", OPERATIONS),
    Bug("storage: the ETag of an object does not count", "_entry", "str(tag) if tag else f'{size}:{modified!r}'",
        "f'{size}:{modified!r}'", ("tests/faults/test_s3.py",)),
    Bug("kernels: INT96 is checked in the first row group only", "check_times", "list(row_groups)",
        "list(row_groups)[:1]", ("tests/conformance/test_int96.py",)),
    Bug("kernels: value ranges are checked in the first row group only", "ValueRangeCheck.__call__",
        "reader.num_row_groups", "1", LATER_GROUPS),
    Bug("kernels: null keys are looked for in the first row group only", "find_nulls", "reader.num_row_groups", "1",
        LATER_GROUPS),
    Bug("kernels: a null does not count as the upper end of a file", "_span",
        "None if len(known) < len(form) else high", "high", PLANNING),
    Bug("kernels: a minus before an order column is ignored", "_split",
        "[~rank if low else rank for rank, low in zip(ranks, lowest, strict=True)]", "list(ranks)",
        ("tests/conformance/test_deduplicate.py",)),
    Bug("planning: bounds without a count of nulls exclude a null", "_usable", "nulls != 0", "nulls", PLANNING),
    Bug("planning: files without a count of nulls have an upper end", "_span_from_stats",
        "count is None or count > 0", "count", PLANNING),
    Bug("planning: of very many texts the last one is missed", "KeySet.hits",
        "_search(self.bounds, lower, 'left') < 2", "_search(self.bounds, lower, 'left') < 1", VALUES),
    Bug("values: codes of composite keys are compressed on one side only", "KeyEncoder._learn",
        "_KeyColumnCodes(values, compressed)", "_KeyColumnCodes(values, None)", VALUES),
    Bug("values: codes of composite keys overflow", "KeyEncoder._learn",
        "len(combined) and int(combined.max()) > _MAX_CODE // max(1, len(combined))", "len(combined) < 0", VALUES),
    Bug("dataset: the first of several source rows is the last", "select_rows",
        "np.sort(len(codes) - 1 - last_of_each(codes[::-1], []))", "last_of_each(codes, [])",
        ("tests/conformance/test_merge_examples.py",)),
    Bug("duckdb: null keys match nothing", "_join", "f't.{name} IS NOT DISTINCT FROM s.{name}'",
        "f't.{name} = s.{name}'", EXCHANGED),
    Bug("duckdb: files are compared with the keys of other partitions", "_join",
        "['part'] if len(key_sets) > 1 else []", "[]", EXCHANGED),
    Bug("exchange: a full merge removes matched rows that its conditions keep", "RunRouted._ready",
        "[orders, dropped, sent[KEEP].rows_of(each.number)[1]]", "[orders, dropped]", EXCHANGED),
    Bug("exchange: rows outside the scope count as rows that a full merge would delete", "_FoundKeys.decisions",
        "both.where(both.in_scope)", "both", EXCHANGED),
    Bug("exchange: a moved row at a cut goes to the task before", "MoveRoutes.tasks",
        "np.searchsorted(cuts, moved.positions[mine], 'right')",
        "np.searchsorted(cuts, moved.positions[mine], 'left')", EXCHANGED),
    Bug("exchange: history rows of different files are counted as those of one", "_file_rows", "(positions, files)",
        "(files, positions)", EXCHANGED),
    Bug("spark: cached listings survive a commit", "refresh", "spark.catalog.refreshByPath(to_spark(address))",
        "to_spark(address)", ("tests/engines/spark/test_paths.py",)),
    Bug("expressions: NOT LIKE is LIKE", "_Parser._like",
        "Call('not', (found,), pa.bool_()) if node.args.get('negate') else found", "found",
        ("tests/core/expressions",)),
    Bug("proofs: statistics exclude NaN", "_bounds", "None if pat.is_floating(type_) else bounds[1]", "bounds[1]",
        PLANNING),
    Bug("proofs: a count of nulls is believed beside bounds", "column_knowledge",
        "nulls == rows and bounds != (None, None)", "nulls == -1", PLANNING),
    Bug("merge: a stale delete deletes", "decide_changes", "_kept(check, files, removals, conditions=False)",
        "_Kept(tuple(removals), tuple(removals))", ROW_CHANGES),
    Bug("merge: a row that moves stays in its old partition", "_Drops._dropped",
        "[self.deletes.changing[number].positions, self.moves.changing[number].positions]",
        "[self.deletes.changing[number].positions]", ROW_CHANGES),
    Bug("cli: apply takes a source that has changed", "_check_source", "state_of(source) != saved.source.files",
        "len(state_of(source)) != len(saved.source.files)", CLI),
    Bug("cli: a full merge of nothing does not ask", "merge",
        "may_delete or 'insert_when' in options or is_empty(rows, source.options)",
        "may_delete or 'insert_when' in options", CLI),
    Bug("cli: partition columns are not passed on", "command", "value is not None and value != []",
        "value is not None and value != [] and (key != 'partition_by')", CLI),
    Bug("cli: a condition of a plan is not parsed", "_option",
        "_expression if name in EXPRESSIONS else _reader(kinds[0])", "_reader(kinds[0])", CLI),
    Bug("protocol: a pruned slot can be used again", "Log._check_is_newest", "", "return None", PROTOCOL),
    Bug("protocol: any record in the slot counts as own", "Log._is_own", "", "return True", PROTOCOL),
    Bug("protocol: the staging folder of an object store is not checked", "FsspecStorage.staging_exists", "",
        "return True", PROTOCOL),
    Bug("protocol: the staging folder of a local disk is not checked", "LocalStorage.staging_exists", "",
        "return True", PROTOCOL),
    Bug("protocol: live writers are considered dead", "LocalStorage.is_alive", "", "return False", PROTOCOL),
    Bug("protocol: the next slot is claimed although a commit is pending", "LogState.is_settled", "",
        "return bool(self.records)", PROTOCOL),
    Bug("protocol: replay retires any file at the path", "Replayer._is_unchanged", "", "return True", PROTOCOL),
    Bug("protocol: replay replaces any file at the path", "Replayer._path_for", "", "return file.path", PROTOCOL),
    Bug("protocol: there is no lock", "LocalStorage.lock", "", "yield", PROTOCOL),
    Bug("protocol: a slot stays free after a failed create", "Log._resolve_failed_create", "", "raise error",
        PROTOCOL),
    Bug("commit: the journal is not checked for conflicts", "Conflicts._find_foreign_commit", "", "return None",
        OPERATIONS),
    Bug("commit: inputs are not checked again", "Conflicts._find_changed_file", "", "return None", TRANSACTION),
    Bug("commit: the folder is not listed again", "Conflicts._find_change_in_tree", "", "return None", TRANSACTION),
    Bug("commit: new paths are not checked again", "Conflicts._find_taken_name", "", "return None", TRANSACTION),
    Bug("commit: final names are not checked", "LocalStorage.check_publishable", "", "return None", TRANSACTION),
    Bug("commit: a moved journal is not detected", "Conflicts._find_lost_staging", "", "return None", TRANSACTION),
    Bug("change: a change is not revalidated", "Revalidation.__call__", "", "return None", CONCURRENT),
    Bug("change: inputs are not compared with a newer view", "Conflicts.check_newer", "",
        "return frozenset(file.path for file in view.files)", CONCURRENT),
    Bug("change: staged files are used again although their inputs changed", "_key", "_parts(task)", "[b'same']",
        CONCURRENT),
    Bug("plan: a file of the same size counts as unchanged", "_check_files", "(file.size, file.version)",
        "(file.size, known.get(file.path, (0, ''))[1])", OPERATIONS),
    Bug("power: staged files are not synced", "LocalStorage.sync_files", "", "pass", POWER),
    Bug("power: the staging folder is not synced", "LocalStorage.sync_dirs", "",
        "paths = [path for path in paths if not '/.staging_' in path]\n...", POWER),
    Bug("power: the sidecar is not synced", "LocalStorage.sync_dirs", "",
        "paths = [path for path in paths if not path.endswith('.fsspeckit')]\n...", POWER),
    Bug("power: the folder of the records is not synced", "LocalStorage.sync_dirs", "",
        "paths = [path for path in paths if not path.endswith('/log')]\n...", POWER),
    Bug("power: the folder of kept files is not synced", "LocalStorage.sync_dirs", "",
        "paths = [path for path in paths if not path.endswith('/kept')]\n...", POWER),
    Bug("power: the new tree of an exchange is not synced", "LocalStorage.sync_dirs", "",
        "paths = [path for path in paths if not '/folder' in path]\n...", ("tests/faults/test_publish_modes.py",)),
    Bug("power: the folder of the sidecar is not synced at commit", "LocalStorage.sync_dirs", "",
        "paths = [path for path in paths if not path.endswith('/lake')]\n...", POWER),
    Bug("power: the record is written in place", "LocalStorage.create_exclusive", "",
        "self._write(open_parent(path).__enter__()[0], path.rpartition('/')[2], data[:9], sync=True)\n"
        "self.remove(path)\nself._write(open_parent(path).__enter__()[0], path.rpartition('/')[2], data, sync=True)\n"
        "self.sync_dirs([parent(path)])", POWER),
    Bug("power: the record is not synced", "LocalStorage._write", "", "sync = False\n...", POWER),
    Bug("power: recovery does not sync the record it found", "Log.sync", "", "pass", POWER),
    Bug("power: the folders of the dataset are not synced before done", "Replayer._folders_of", "", "return []",
        POWER),
    Bug("sweep: an exchange ignores what other programs add", "Exchange._repeat_foreign_changes", "", "pass",
        ("tests/faults/test_exchange.py",)),
    Bug("sweep: recovery ignores what other programs added to an exchanged folder", "Exchange.keep_additions", "",
        "pass", ("tests/faults/test_exchange.py",)),
    Bug("late: names of files that may come back are not stored", "Log.remember_copies", "", "pass", LATE),
    Bug("late: names of removed files are not stored", "Log.note_removed", "", "pass", LATE),
    Bug("late: a late writer does not look again", "Replayer._finish", "", "self._log.finish(record)", LATE),
    Bug("late: files that are not data are not removed", "Replayer._close_in_bulk",
        "[*(each.path for each in record.retire), *put_back]", "[each.path for each in record.retire]", LATE),
    Bug("sweep: records are not replayed", "Replayer.replay", "", "self._log.finish(item)", SWEEPS),
    Bug("sweep: new files are not published again", "Replayer._path_for", "", "return None", SWEEPS),
    Bug("sweep: retired files are not retired again", "Replayer._is_unchanged", "", "return False", SWEEPS),
    Bug("sweep: recovery does not keep files", "Replayer._unchanged", "", "return []", SWEEPS),
    Bug("sweep: orphans are not removed", "Log.stagings", "", "return []", SWEEPS),
    Bug("protocol: orphans are deleted without a fence", "_fence_orphans", "log.claim(record)", "True", PROTOCOL),
    Bug("protocol: staging is deleted after done, in bulk", "Replayer._close_in_bulk", "",
        "self._log.finish(record)\n...", PROTOCOL),
    Bug("protocol: staging is deleted after done", "Replayer._close", "", "self._log.finish(record)\n...", PROTOCOL),
    Bug("protocol: older records without done are replayed", "replay_pending", "",
        "for seq in state.records:\n    if seq not in state.done:\n"
        "        replayer.replay(log.read(seq), state)\nreturn ()", PROTOCOL),
    Bug("protocol: records are pruned before done", "Log.prune", "('done', 'json')", "('json', 'done')", PROTOCOL),
    Bug("commit: staged files are not checked", "CheckStaged._check",
        "check_staged(self.storage, item.path, item.entry, item.rows)", "(item.entry, b'')", TRANSACTION),
    Bug("change: a revalidation trusts size and stamp", "Conflicts.check_newer",
        "{*known}.difference(*(record.paths for record in self._commits_since(view.log)))", "{*known}", CONCURRENT),
    Bug("sweep: staged files are moved into the tree of an exchange", "LocalStorage.link", "",
        "self.publish(path, target)", ("tests/faults/test_publish_modes.py",)),
    Bug("power: new folders above the sidecar are not synced", "SidecarLocations._create_at",
        "self._storage.sync_dirs((parent(folder) for folder in created))", "None", POWER),
    Bug("power: new partition folders are not synced before files move in", "Replayer._make_folders",
        "self._storage.sync_dirs((parent(join(self._root, folder)) for folder in record.folders))", "None", POWER),
    Bug("sweep: done comes before publishing", "Replayer.publish_all", "", "self._log.finish(record)\n...", SWEEPS),
    Bug("sweep: retiring comes before publishing", "Replayer._moves", "publish + retire", "retire + publish", SWEEPS),
    Bug("sweep: staging is deleted although the outcome is unknown", "Transaction.__exit__",
        "self._can_delete_staging", "True", SWEEPS),
    Bug("sweep: an error while publishing is reported as a failed commit", "Transaction._apply", "",
        "Replayer(self._storage, self._view.root, self._log).publish_all(record, state)\nreturn True", SWEEPS),
    Bug("sweep: files are not kept before they are replaced", "Replayer.publish_all",
        "self._keep(record.kept, distribute)", "None", SWEEPS),
)
# fmt: on
