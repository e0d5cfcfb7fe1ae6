"""The functions that the specification names for merging; see `fsspeckit.core.planning.merge_request`."""

from fsspeckit.core.planning.merge_request import compute_merge_stats, normalize_keys, validate_keys_and_schema

__all__ = ["compute_merge_stats", "normalize_keys", "validate_keys_and_schema"]
