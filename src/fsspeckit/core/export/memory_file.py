"""A file in memory, into which pyiceberg writes a manifest. The commit writes its bytes to the storage."""

from __future__ import annotations

from io import BytesIO
from typing import NoReturn

from pyiceberg.io import OutputFile


class _Stream(BytesIO):
    """A stream whose bytes are kept when it is closed."""

    def __init__(self, file: MemoryFile) -> None:
        super().__init__()
        self._file = file

    def close(self) -> None:
        """Keep the bytes."""
        if not self.closed:
            self._file.content = self.getvalue()
        super().close()


class MemoryFile(OutputFile):
    """A new file with the URL that it gets."""

    def __init__(self, location: str) -> None:
        super().__init__(location)
        self.content = b""

    def __len__(self) -> int:
        return len(self.content)

    def exists(self) -> bool:
        """Return False: a file is new."""
        return False

    def to_input_file(self) -> NoReturn:
        """Raise: the file is only written."""
        raise NotImplementedError(f"{self.location} is only written. Read it from the storage.")

    def create(self, overwrite: bool = False) -> _Stream:  # noqa: ARG002 - a file is new
        """Open the file."""
        return _Stream(self)
