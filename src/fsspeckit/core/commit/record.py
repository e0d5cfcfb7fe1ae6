"""One record of the journal: what it says, and how it is read back from a file that anybody may have written.

A record is executed by the next writer of the dataset, so nothing in it is believed: every name must be relative and
stay inside the dataset, a staged name is one name in the staging folder of its transaction, and ids have the form that
`new_id` gives them. A record that breaks a rule is refused as a whole. Nothing here touches storage; that no folder on
the way is a symbolic link is checked where the record is carried out.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from fsspeckit.common.errors import StorageError
from fsspeckit.core.file_names import is_data_file, is_inside, is_side_file
from fsspeckit.core.storage.base import OWNER, Entry, is_sidecar_name, parent

IDEMPOTENCY_KEY = "idempotency_key"
MOST_RECORDS = 10**19
"""No journal gets so many records; a higher number was not given by a writer."""
Kind = Literal["commit", "abort", "fence"]
_FORMAT = 1
_KINDS: tuple[Kind, ...] = ("commit", "abort", "fence")
_ID = re.compile(r"[0-9a-f]{32}")
_T = TypeVar("_T")


def new_id() -> str:
    """A fresh transaction id."""
    return uuid.uuid4().hex


def is_id(text: object) -> bool:
    """Whether a text has the form of a transaction id."""
    return isinstance(text, str) and _ID.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class Identity:
    """What a file was when we looked: enough to see that it is another one now."""

    size: int
    stamp: str

    def matches(self, entry: Entry | None) -> bool:
        """Whether the file that stands there now is still that one."""
        return entry is not None and entry.size == self.size and entry.stamp == self.stamp


@dataclass(frozen=True, slots=True)
class Published:
    """One file that the record puts into the dataset; ``staged`` is its name in the staging folder."""

    staged: str
    path: str
    rows: int
    size: int
    stamp: str
    replaces: Identity | None = None


@dataclass(frozen=True, slots=True)
class Retired:
    """One file that the record takes out of the dataset."""

    path: str
    identity: Identity


@dataclass(frozen=True, slots=True)
class Record:
    """One slot of the journal. Only ``commit`` changes data; ``abort`` and ``fence`` keep others from committing.

    ``owner`` says who wrote the record; ``fenced`` names transactions that may never commit. They are never mixed up:
    a writer has won a slot only where the kind is ``commit`` and the owner is itself.
    """

    seq: int
    kind: Kind
    owner: str
    publish: tuple[Published, ...] = ()
    retire: tuple[Retired, ...] = ()
    folders: tuple[str, ...] = ()
    fenced: tuple[str, ...] = ()
    info: Mapping[str, Any] = field(default_factory=dict)

    @property
    def idempotency_key(self) -> str | None:
        """The key under which the change was made, of which there is at most one commit."""
        return self.info.get(IDEMPOTENCY_KEY)

    def to_bytes(self) -> bytes:
        """The record as it stands on disk."""
        return json.dumps(_fields(self) | {"format": _FORMAT}, separators=(",", ":"), default=_fields).encode()

    @classmethod
    def from_bytes(cls, data: bytes, seq: int, path: str) -> Record:
        """Read the record of a slot; one that breaks a rule is an error, never skipped and never carried out."""
        try:
            return _checked(_record(json.loads(data), seq))
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise StorageError(
                f"the journal record {path} cannot be used: {_reason(error)}. Nothing was done. Restore the record "
                "from a backup, or upgrade fsspeckit; if fsspeckit did not write it, delete the folder of the journal."
            ) from error


def _fields(part: Record | Published | Retired | Identity) -> dict[str, Any]:
    return {name: getattr(part, name) for name in part.__slots__}


def _reason(error: Exception) -> str:
    if isinstance(error, KeyError):
        return f"it lacks {error.args[0]!r}"
    return "it is nested too deeply" if isinstance(error, RecursionError) else str(error)


def _record(body: Any, seq: int) -> Record:
    body = _typed(body, dict, "the record")
    if body["format"] != _FORMAT:
        raise ValueError(f"its format is {str(body['format'])[:20]!r}, and this version of fsspeckit reads {_FORMAT}")
    if body["seq"] != seq:
        raise ValueError(f"it does not have the number of its file, {seq}")
    if body["kind"] not in _KINDS:
        raise ValueError(f"its kind is none of {', '.join(_KINDS)}")
    return Record(
        seq=seq,
        kind=body["kind"],
        owner=_typed(body["owner"], str, "owner"),
        publish=_all(body["publish"], _published, "publish"),
        retire=_all(body["retire"], _retired, "retire"),
        folders=_all(body["folders"], _text, "folders"),
        fenced=_all(body["fenced"], _text, "fenced"),
        info=_typed(body["info"], dict, "info"),
    )


def _published(item: Any) -> Published:
    item = _typed(item, dict, "publish")
    replaces = None if item["replaces"] is None else _identity(item["replaces"])
    return Published(
        _text(item["staged"]),
        _text(item["path"]),
        _count(item["rows"]),
        _count(item["size"]),
        _text(item["stamp"]),
        replaces,
    )


def _retired(item: Any) -> Retired:
    item = _typed(item, dict, "retire")
    return Retired(_text(item["path"]), _identity(item["identity"]))


def _identity(item: Any) -> Identity:
    item = _typed(item, dict, "identity")
    return Identity(_count(item["size"]), _text(item["stamp"]))


def _all(items: Any, read: Callable[[Any], _T], name: str) -> tuple[_T, ...]:
    return tuple(read(item) for item in _typed(items, list, name))


def _text(value: Any) -> str:
    return _typed(value, str, "a name")


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError("a number of rows or bytes in it is not a whole number")
    return value


def _typed(value: Any, kind: type[_T], name: str) -> _T:
    if not isinstance(value, kind):
        raise ValueError(f"{name} is not a {kind.__name__}")
    return value


def _checked(record: Record) -> Record:
    """Refuse every name that could reach outside of the dataset, or what a commit may not touch in it."""
    if not is_id(record.owner) or not all(map(is_id, record.fenced)):
        raise ValueError("a transaction in it has no valid id")
    if record.kind != "commit" and (record.publish or record.retire or record.folders):
        raise ValueError(f"it is a record of kind {record.kind}, which changes no files, and names some")
    if not isinstance(record.info.get(IDEMPOTENCY_KEY, ""), str):
        raise ValueError("its idempotency key is not text")
    published, retired = [item.path for item in record.publish], [item.path for item in record.retire]
    _check_names(published, is_data_file, "publishes")
    _check_names(retired, lambda path: is_data_file(path) or is_side_file(path), "retires")
    if len({*published, *retired}) < len(published) + len(retired):
        raise ValueError("it publishes or retires a file twice")
    staged = [item.staged for item in record.publish]
    if not all(map(_is_staged_name, staged)) or len(set(staged)) < len(staged):
        raise ValueError("a staged file in it is not a file of the staging folder")
    if not {*record.folders} <= {folder for path in published for folder in _folders_of(path)}:
        raise ValueError("it makes a folder in which it publishes nothing")
    return record


def _check_names(paths: Sequence[str], may_be: Callable[[str], bool], verb: str) -> None:
    for path in paths:
        if not is_inside(path) or any(map(is_sidecar_name, path.split("/"))) or not may_be(path):
            raise ValueError(f"it {verb} {path[:200]!r}, which is not a data file inside the dataset")


def _is_staged_name(name: str) -> bool:
    return is_inside(name) and "/" not in name and name != OWNER


def _folders_of(path: str) -> list[str]:
    """All folders of a relative path, that of the dataset, which is ``""``, included."""
    found = [parent(path)]
    while found[-1]:
        found.append(parent(found[-1]))
    return found
