"""The functions that the specification names for merging, from the modules that define them."""

from fsspeckit.common.schema import unify_schemas
from fsspeckit.core.planning.merge_request import compute_merge_stats, normalize_keys, validate_keys_and_schema

__all__ = ["compute_merge_stats", "normalize_keys", "unify_schemas", "validate_keys_and_schema"]
