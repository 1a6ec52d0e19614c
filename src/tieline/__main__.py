"""`python -m tieline` is the command."""

import sys

from tieline.cli.main import main

__all__: list[str] = []

if __name__ == "__main__":
    sys.exit(main())
