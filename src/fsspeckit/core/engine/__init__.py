"""The engine protocol, and the engine that lives in one process."""
