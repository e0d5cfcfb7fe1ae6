"""Planning, the file kernel and the commit; no engine and no face."""
