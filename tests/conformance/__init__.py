"""What every engine must do, tested through the public API and compared with an oracle over lists of dicts."""
