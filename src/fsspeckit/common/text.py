"""Text that is shown to users: without control characters, and without secrets. Text that can be stored."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TypeGuard

# The part before the @ is the user, except in Azure's URLs, where it is the container.
# A password may hold slashes; a colon before a number is that of a port.
LOGIN = r"(?:[^/\s'\"]*@|[^/:\s'\"]+:(?!\d+(?:[/\s]|$))[^\s@'\"]*@)"
_URL = re.compile(rf"((?:abfss?|wasbs?)://[\w$-]+@|\w+://){LOGIN}?([^\s?'\")]*)(?:\?[^\s'\")]*)?")
# The same in a part of a URL without its protocol, as libraries repeat it.
_LOGIN = re.compile(r"(?<![^\s/'\"(\[=,])[^\s/'\"@:(\[=,]+:[^\s/'\"@]+@(?=\w)")
_SIGNED = re.compile(r"([?&;](?:[\w-]*(?:sig|signature|token|secret|password|credential|key))=)[^\s&;'\")]+", re.I)
_ACCOUNT = re.compile(r"\b((?:AccountKey|SharedAccessKey|SharedAccessSignature)=)[^\s;'\")]+")
_HIDDEN = "***"


def scrub(text: str) -> str:
    """Remove user names, passwords and query strings from the URLs of a text, and keys from parts of them.

    Examples:
        >>> scrub("https://user:pw@host/data.parquet?sig=secret")
        'https://host/data.parquet'
        >>> scrub('Invalid bucket name "user:pw@bucket"')
        'Invalid bucket name "***@bucket"'
    """
    if "://" in text:
        text = _URL.sub(r"\1\2", text)
    if "@" in text:
        text = _LOGIN.sub(f"{_HIDDEN}@", text)
    if "=" in text:
        text = _ACCOUNT.sub(rf"\1{_HIDDEN}", _SIGNED.sub(rf"\1{_HIDDEN}", text))
    return text


def printable(text: str, keep: str = "") -> str:
    r"""Escape characters that are not printable: control characters, line ends, marks that change the text direction.

    Args:
        text: Any text.
        keep: Characters that are not escaped, such as line ends in a text of several lines.

    Examples:
        >>> printable("a\x1b[31m\n.parquet")
        'a\\x1b[31m\\n.parquet'
    """
    if text.isprintable():
        return text
    escaped = (c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text)
    return "".join(escaped)


def counted(count: int, noun: str) -> str:
    """Return a number with a noun, in the plural unless the number is one.

    Example:
        >>> counted(1, "commit"), counted(1200, "more file")
        ('1 commit', '1,200 more files')
    """
    return f"{count:,} {noun if count == 1 else noun + 's'}"


def shortened(names: Sequence[str], most: int = 20) -> str:
    """Return names for a message, and how many more there are.

    Example:
        >>> shortened(["a", "b", "c"], most=2)
        'a, b and 1 more'
    """
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(map(printable, names[:most])) + more


def is_storable(text: object) -> TypeGuard[str]:
    r"""Return whether a value is text that UTF-8 can represent. A lone surrogate has no UTF-8 form.

    Examples:
        >>> is_storable("ü"), is_storable("\ud800"), is_storable(b"x")
        (True, False, False)
    """
    return isinstance(text, str) and not any("\ud800" <= char <= "\udfff" for char in text)


def one_line(text: str) -> str:
    """Return a message as one line; spaces in names are kept."""
    return re.sub(r"\s*[\n\r\t]\s*", " ", text).strip()


def split_message(message: str) -> tuple[str, str]:
    """Split a message of the library into the problem and the action to take, its last clause; that may be empty.

    Examples:
        >>> split_message("no parquet dataset at lake; check the path, or write it first")
        ('no parquet dataset at lake', 'check the path, or write it first')
        >>> split_message("a.parquet is damaged: it is empty. Nothing was changed; run the operation again.")
        ('a.parquet is damaged: it is empty. Nothing was changed', 'run the operation again')
    """
    text = one_line(message).rstrip(".")
    cut = max(text.rfind("; "), text.rfind(". "))
    if cut < 0:
        return text, ""
    remedy = text[cut + 2 :]
    return text[:cut], remedy[:1].lower() + remedy[1:] if remedy[1:2].islower() else remedy
