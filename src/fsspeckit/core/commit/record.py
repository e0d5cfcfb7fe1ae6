"""The journal record: its fields, its JSON form, and the validation of a record that is read.

The next writer of the dataset applies a record, and anyone with access may have written the file, so every field is
validated: paths are relative and stay inside the dataset, a staged name is a file name in the transaction's staging
folder, and ids have the form of `new_id`. A record with one invalid field is rejected as a whole. `replay` checks
that no folder in a path is a symbolic link.
"""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from fsspeckit.common.documents import parse_json
from fsspeckit.common.errors import StorageError
from fsspeckit.common.text import is_storable, printable
from fsspeckit.core.commit.emptied import Emptied
from fsspeckit.core.commit.partition_types import PartitionTypes
from fsspeckit.core.commit.tombstones import TombstoneFile, from_fields
from fsspeckit.core.file_names import is_data_file, is_inside, is_side_file, is_visible
from fsspeckit.core.model import ViewFile
from fsspeckit.core.storage.base import OWNER, Entry, is_sidecar_name, join, parent

IDEMPOTENCY_KEY = "idempotency_key"
POSITIONS = "positions"
SEEN = "seen"
MAX_RECORDS = 10**19
"""Upper bound for the number of a record."""
MAX_BYTES = 128 * 2**20
"""Upper bound for the size of a record."""
_MAX_FOLDERS = 64
Kind = Literal["commit", "abort", "fence"]
_FORMAT = 1
_FORMAT_OF_KEPT_VERSIONS = 2
"""Format of a record that keeps files or sets the policy: versions of fsspeckit without kept versions reject it."""
_FORMAT_OF_TOMBSTONES = 3
"""Format of a record with tombstones: versions of fsspeckit that would lose them reject it."""
_FORMATS = (_FORMAT, _FORMAT_OF_KEPT_VERSIONS, _FORMAT_OF_TOMBSTONES)
_KINDS: tuple[Kind, ...] = ("commit", "abort", "fence")
_DIGEST = re.compile(r"[0-9a-f]{64}")
MAX_RETAIN = 10**11
"""Upper bound of the seconds for which replaced files are kept."""
_PACKED = re.compile(r"(?:[A-Za-z0-9+/]{32})+")
"""Source files of 24 bytes in base64."""
_ID = re.compile(r"[0-9a-f]{32}")
_MAX_KEY = 1000
_SHOWN = 60
_T = TypeVar("_T")


def is_path_in_dataset(path: str) -> bool:
    """Return whether a record may name a path: it stays inside the dataset, outside of journals, and is not deep."""
    parts = path.split("/")
    return len(parts) <= _MAX_FOLDERS + 1 and is_inside(path) and not any(map(is_sidecar_name, parts))


def new_id() -> str:
    """Return a new transaction id."""
    return uuid.uuid4().hex


def is_id(text: object) -> bool:
    """Return whether a value has the form of a transaction id."""
    return isinstance(text, str) and _ID.fullmatch(text) is not None


def check_key(key: object) -> None:
    """Raise if a value cannot be an idempotency key, because no reader of its record would accept it."""
    if not is_storable(key) or not 0 < len(key) <= _MAX_KEY:
        shown = printable(repr(key)[:_SHOWN])
        raise ValueError(f"idempotency_key={shown} is not a text of 1 to {_MAX_KEY} characters. Pass one.")


@dataclass(frozen=True, slots=True)
class Identity:
    """Size and stamp of a file, to detect that another file has its path."""

    size: int
    stamp: str

    def matches(self, entry: Entry | ViewFile | None) -> bool:
        """Return whether an entry is still the same file."""
        return entry is not None and entry.size == self.size and entry.stamp == self.stamp


@dataclass(frozen=True, slots=True)
class Published:
    """A file that the record adds to the dataset. ``staged`` is its name in the staging folder."""

    staged: str
    path: str
    rows: int
    size: int
    stamp: str
    replaces: Identity | None = None

    @property
    def other_path(self) -> str:
        """Return the path for the file if another program created a file at ``path`` after the commit."""
        return join(parent(self.path), f"{hashlib.sha256(self.staged.encode()).hexdigest()[:16]}.parquet")

    def is_at(self, found: Entry | Identity | None, *, in_place: bool) -> bool:
        """Return whether a found file is this file. A copy on an object store may have another stamp."""
        return found is not None and found.size == self.size and (found.stamp == self.stamp or not in_place)


@dataclass(frozen=True, slots=True)
class Retired:
    """A file that the record removes from the dataset."""

    path: str
    identity: Identity


@dataclass(frozen=True, slots=True)
class Kept:
    """A file that the record removes from the dataset and keeps in the sidecar under ``name``."""

    name: str
    path: str
    identity: Identity


def digest_of(values: Mapping[str, int | float]) -> str:
    """Return a digest of numbers by path."""
    lines = "".join([f"{path}\0{values[path]!r}\n" for path in sorted(values)])
    return hashlib.sha256(lines.encode("utf-8", "surrogateescape")).hexdigest()


@dataclass(frozen=True, slots=True)
class FileList:
    """The data files of the dataset after a commit: their number, bytes, and a digest of their paths and sizes.

    On a local disk, ``times`` is a digest of the times of their last writes, and ``place`` is the mark of the journal:
    in a copy with another mark, these times have no meaning.
    """

    files: int
    size: int
    digest: str
    times: str = field(default="", compare=False)
    place: str = field(default="", compare=False)

    @classmethod
    def of(cls, sizes: Mapping[str, int]) -> FileList:
        """Return the list of files with these sizes by path."""
        return cls(len(sizes), sum(sizes.values()), digest_of(sizes))


@dataclass(frozen=True, slots=True)
class Record:
    """One slot of the journal. Only ``commit`` changes data; ``abort`` and ``fence`` prevent other commits.

    ``owner`` is the id of the writer of the record. ``fenced`` are the ids of transactions that can no longer commit.
    A writer owns a slot only if the kind is ``commit`` and the owner is its own id. With ``keep``, the data files that
    the record removes are kept in the sidecar. ``retain`` sets for how many seconds later commits keep files; 0 turns
    that off. ``listed`` is the dataset after the commit, in records of datasets that keep files. ``emptied`` has its
    columns if no data file is left. ``files_left`` says whether there are data files after a commit that publishes
    none; records of older versions do not have it. ``anew`` says that rows of earlier commits are gone, see `memory`.
    ``tombstones`` are all files of tombstones after the commit, if it changes them. ``partition_types`` are those of
    the partition columns and ``key`` the columns that identify a row, if it sets them.
    """

    seq: int
    kind: Kind
    owner: str
    publish: tuple[Published, ...] = ()
    retire: tuple[Retired, ...] = ()
    folders: tuple[str, ...] = ()
    fenced: tuple[str, ...] = ()
    info: Mapping[str, Any] = field(default_factory=dict)
    keep: bool = False
    retain: int | None = None
    listed: FileList | None = None
    emptied: Emptied | None = None
    files_left: bool | None = None
    anew: bool = False
    tombstones: tuple[TombstoneFile, ...] | None = None
    partition_types: PartitionTypes | None = None
    key: tuple[str, ...] | None = None

    @property
    def staged(self) -> list[str]:
        """Return the names of all files of the record in the staging folder."""
        return [item.staged for item in self.publish] + [file.staged for file in self.new_tombstones]

    @property
    def new_tombstones(self) -> list[TombstoneFile]:
        """Return the files of tombstones that the commit adds."""
        return [file for file in self.tombstones or () if file.staged]

    @property
    def removed(self) -> list[tuple[str, Identity]]:
        """Return path and identity of each data file that the commit replaces or retires."""
        replaced = [(item.path, item.replaces) for item in self.publish if item.replaces is not None]
        return replaced + [(item.path, item.identity) for item in self.retire if not is_side_file(item.path)]

    @property
    def kept(self) -> list[Kept]:
        """Return the files that the commit keeps in the sidecar. Their names follow from the record alone."""
        removed = self.removed if self.keep else []
        return [Kept(kept_name(self.seq, number), *item) for number, item in enumerate(removed)]

    @property
    def paths(self) -> list[str]:
        """Return the paths of all published and retired files."""
        return [item.path for item in self.publish] + [item.path for item in self.retire]

    @property
    def idempotency_key(self) -> str | None:
        """Return the idempotency key of the change. At most one commit has a given key."""
        return self.info.get(IDEMPOTENCY_KEY)

    @property
    def positions(self) -> Mapping[str, int]:
        """Return the last version of other datasets that each reader of changes has processed with this commit."""
        found: Mapping[str, int] = self.info.get(POSITIONS, {})
        return found

    @property
    def seen(self) -> Mapping[str, str]:
        """Return the source files that each reader has processed with this commit, as `seen_files` packs them."""
        found: Mapping[str, str] = self.info.get(SEEN, {})
        return found

    def to_bytes(self) -> bytes:
        """Return the record as it is stored."""
        keeps = self.keep or self.retain is not None
        version = _FORMAT_OF_KEPT_VERSIONS if keeps else _FORMAT
        version = version if self.tombstones is None else _FORMAT_OF_TOMBSTONES
        data = json.dumps(_values(self) | {"format": version}, separators=(",", ":"), default=_fields).encode()
        if len(data) > MAX_BYTES:
            raise StorageError(
                f"The change has too many files for one commit: its record has {len(data):,} bytes, more than "
                f"{MAX_BYTES:,}. Nothing was changed. Change fewer partitions at once."
            )
        return data

    @classmethod
    def from_bytes(cls, data: bytes, seq: int, path: str) -> Record:
        """Parse and validate the record of a slot.

        Raises:
            StorageError: The record is invalid. It is neither skipped nor applied.
        """
        try:
            if len(data) > MAX_BYTES:
                raise ValueError(f"it has {len(data):,} bytes, more than {MAX_BYTES:,}")
            return _validated(_record(parse_json(data), seq))
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise StorageError(
                f"The journal record {path} cannot be used: {_reason(error)}. Nothing was changed. Restore the record "
                "from a backup, upgrade fsspeckit, or delete the journal folder if fsspeckit did not write it."
            ) from error


def kept_name(seq: int, number: int) -> str:
    """Return the name of a kept file. No reader takes it for a data file."""
    return f"{seq:020d}-{number}.kept"


def _fields(
    part: Record | Published | Retired | Identity | FileList | Emptied | TombstoneFile | PartitionTypes,
) -> dict[str, Any] | str:
    return part.text if isinstance(part, PartitionTypes) else _values(part)


def _values(part: Any) -> dict[str, Any]:
    return {name: getattr(part, name) for name in part.__slots__}


def _reason(error: Exception) -> str:
    if isinstance(error, KeyError):
        return f"{error.args[0]!r} is missing"
    return "it is nested too deeply" if isinstance(error, RecursionError) else str(error)


def _record(body: Any, seq: int) -> Record:
    body = _typed(body, dict, "the record")
    if body["format"] not in _FORMATS:
        known = f"{', '.join(map(str, _FORMATS[:-1]))} and {_FORMATS[-1]}"
        raise ValueError(f"its format is {str(body['format'])[:20]!r}, but this version of fsspeckit reads {known}")
    if body["seq"] != seq:
        raise ValueError(f"its number differs from that of its file, {seq}")
    if body["kind"] not in _KINDS:
        raise ValueError(f"its kind is not one of {', '.join(_KINDS)}")
    return Record(
        seq=seq,
        kind=body["kind"],
        owner=_typed(body["owner"], str, "owner"),
        publish=_all(body["publish"], _published, "publish"),
        retire=_all(body["retire"], _retired, "retire"),
        folders=_all(body["folders"], _text, "folders"),
        fenced=_all(body["fenced"], _text, "fenced"),
        info=_typed(body["info"], dict, "info"),
        keep=_typed(body.get("keep", False), bool, "keep"),
        retain=None if body.get("retain") is None else _count(body["retain"]),
        listed=None if body.get("listed") is None else _file_list(body["listed"]),
        emptied=None if body.get("emptied") is None else Emptied.from_fields(_typed(body["emptied"], dict, "emptied")),
        files_left=None if body.get("files_left") is None else _typed(body["files_left"], bool, "files_left"),
        anew=_typed(body.get("anew", False), bool, "anew"),
        tombstones=None if body.get("tombstones") is None else _tombstones(body["tombstones"], seq, body["kind"]),
        key=None if body.get("key") is None else key_of(body["key"]),
        partition_types=None if (types := body.get("partition_types")) is None else PartitionTypes.parse(_text(types)),
    )


def key_of(names: Any) -> tuple[str, ...]:
    """Validate the key columns in a record or in a file of the journal.

    Raises:
        ValueError: They are not different names of columns.
    """
    found = _all(names, _text, "key")
    if not found or len(set(found)) < len(found) or not all(map(is_storable, found)):
        raise ValueError("its key is not a list of different columns")
    return found


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


def _file_list(item: Any) -> FileList:
    item = _typed(item, dict, "listed")
    times, place = _text(item.get("times", "")), _text(item.get("place", ""))
    return FileList(_count(item["files"]), _count(item["size"]), _text(item["digest"]), times, place)


def _tombstones(items: Any, seq: int, kind: str) -> tuple[TombstoneFile, ...]:
    files = from_fields(items, seq)
    if kind != "commit" or any(bool(file.staged) != (file.slot == seq) for file in files):
        raise ValueError("its files of deleted keys are not those of a commit")
    return files


def _all(items: Any, read: Callable[[Any], _T], name: str) -> tuple[_T, ...]:
    return tuple(read(item) for item in _typed(items, list, name))


def _text(value: Any) -> str:
    return _typed(value, str, "a name")


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError("a number of rows or bytes is not a non-negative integer")
    return value


def _typed(value: Any, kind: type[_T], name: str) -> _T:
    if not isinstance(value, kind):
        raise ValueError(f"{name} is not a {kind.__name__}")
    return value


def _validated(record: Record) -> Record:
    """Return the record, or raise if a path leaves the dataset or names a file that a commit must not change."""
    if not is_id(record.owner) or not all(map(is_id, record.fenced)):
        raise ValueError("a transaction id is not valid")
    names_files = record.publish or record.retire or record.folders or record.retain is not None
    sets = (record.partition_types, record.key)
    if record.kind != "commit" and (names_files or record.anew or any(each is not None for each in sets)):
        raise ValueError(f"a record of kind {record.kind} must not name files")
    if record.emptied is not None and (record.publish or record.kind != "commit"):
        raise ValueError("it has the columns of an empty dataset, and is not the commit that emptied it")
    if record.retain is not None and record.retain > MAX_RETAIN:
        raise ValueError(f"it keeps files for more than {MAX_RETAIN} seconds")
    listed = record.listed
    if listed is not None and not all(
        _DIGEST.fullmatch(each) for each in (listed.digest, listed.times or listed.digest)
    ):
        raise ValueError("the digest of its files is not valid")
    if not isinstance(record.info.get(IDEMPOTENCY_KEY, ""), str):
        raise ValueError("its idempotency key is not text")
    positions = record.info.get(POSITIONS, {})
    if not isinstance(positions, dict) or any(
        type(version) is not int or version < 0 for version in positions.values()
    ):
        raise ValueError("its positions are not numbers of versions")
    seen = record.info.get(SEEN, {})
    if not isinstance(seen, dict) or not all(
        isinstance(each, str) and _PACKED.fullmatch(each) for each in seen.values()
    ):
        raise ValueError("its list of source files is not valid")
    published, retired = [item.path for item in record.publish], [item.path for item in record.retire]
    replaced = [item.path for item in record.publish if item.replaces is not None]
    _check_names({*published} - {*replaced}, is_data_file, "publishes")
    _check_names(replaced, is_visible, "replaces")
    _check_names(retired, lambda path: is_visible(path) or is_side_file(path), "retires")
    if len({*published, *retired}) < len(published) + len(retired):
        raise ValueError("it publishes or retires a file twice")
    staged = record.staged
    if not all(map(_is_staged_name, staged)) or len(set(staged)) < len(staged):
        raise ValueError("a staged file is not in the staging folder")
    if not {*record.folders} <= {folder for path in published for folder in _folders_of(path)}:
        raise ValueError("it creates a folder in which it publishes no file")
    return record


def _check_names(paths: Iterable[str], is_allowed: Callable[[str], bool], verb: str) -> None:
    for path in paths:
        if not is_path_in_dataset(path) or not is_allowed(path):
            raise ValueError(f"it {verb} {path[:200]!r}, which is not a data file inside the dataset")


def _is_staged_name(name: str) -> bool:
    return is_inside(name) and "/" not in name and name != OWNER


def _folders_of(path: str) -> list[str]:
    """Return all folders of a relative path, including ``""``, the folder of the dataset."""
    folders = [parent(path)]
    while folders[-1]:
        folders.append(parent(folders[-1]))
    return folders
