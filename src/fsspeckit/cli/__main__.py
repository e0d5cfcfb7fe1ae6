"""Run the program `fsspeckit` as `python -m fsspeckit.cli`."""

import sys

from fsspeckit.cli.app import main

if __name__ == "__main__":
    sys.exit(main())
