"""What every layer shares and nothing below: errors, schemas, hive partition paths, logging."""
