"""`python -m fsspeckit` is `fsspeckit`."""

import sys

from fsspeckit.cli.app import main

if __name__ == "__main__":
    sys.exit(main())
