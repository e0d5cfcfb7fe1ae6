"""Values in memory: Arrow and numpy only, no files."""
