"""What an object store says when it refuses a request: the bucket, the credentials or the region are wrong.

Libraries turn the answers into errors of many classes, often into "not found" or "bad request"; the code of the answer
is in the error or in its cause.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from fsspeckit.common.errors import StorageError, StoragePermissionError

_MISSING_BUCKET = frozenset({"NoSuchBucket", "ContainerNotFound", "ContainerBeingDeleted"})
_CREDENTIALS = frozenset(
    {
        "AuthenticationFailed",
        "AuthorizationFailure",
        "ExpiredToken",
        "InvalidAccessKeyId",
        "InvalidAuthenticationInfo",
        "InvalidToken",
        "NoAuthenticationInformation",
        "SignatureDoesNotMatch",
        "TokenRefreshRequired",
        "XAdminUserNotFound",
    }
)
_REGION = frozenset(
    {"AuthorizationHeaderMalformed", "IllegalLocationConstraintException", "IncorrectEndpoint", "PermanentRedirect"}
)
_ADVICE: tuple[tuple[frozenset[str], type[StorageError], str], ...] = (
    (_MISSING_BUCKET, StorageError, "the bucket or container does not exist. Create it, or correct the path"),
    (
        _CREDENTIALS,
        StoragePermissionError,
        "the server does not accept the credentials. Correct the key and secret in storage_options or the environment",
    ),
    (
        _REGION,
        StoragePermissionError,
        "the bucket is in another region. Pass its region, as region_name in client_kwargs of storage_options",
    ),
)


def refusal(error: BaseException, failed: str) -> StorageError | None:
    """Return the typed error if a store refuses the request as such; ``failed`` says which request."""
    for code in _codes(error):
        for codes, kind, advice in _ADVICE:
            if code in codes:
                return kind(f"{failed}: {advice} ({code}).")
    return None


def statuses(error: BaseException) -> list[int]:
    """Return the HTTP status of the answer in an error and in each of its causes."""
    found = []
    for each in _chain(error):
        response = getattr(each, "response", None)
        meta = response.get("ResponseMetadata") if isinstance(response, Mapping) else None
        status = meta.get("HTTPStatusCode") if isinstance(meta, Mapping) else getattr(each, "code", None)
        status = getattr(each, "status_code", None) if not isinstance(status, int) else status
        if isinstance(status, int):
            found.append(status)
    return found


def _codes(error: BaseException) -> Iterator[str]:
    for each in _chain(error):
        response = getattr(each, "response", None)
        body = response.get("Error") if isinstance(response, Mapping) else None
        code = body.get("Code") if isinstance(body, Mapping) else getattr(each, "error_code", None)
        if code is not None:
            yield str(getattr(code, "value", code))


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
