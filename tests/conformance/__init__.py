"""What every engine must do, told by the public API alone and judged by an oracle over lists of dicts."""
