"""The `tieline` command's entry point. `tieline --version` is answered before anything else is imported."""

from __future__ import annotations

import errno
import sys

from tieline import __version__

__all__ = ["main"]


def main() -> int:
    """Run the command line of this process; return its exit code (CLI specification §11.6)."""
    arguments = sys.argv[1:]
    if arguments[:1] in (["-v"], ["--version"]):
        try:
            if sys.stdout is None:
                raise OSError(errno.EBADF, "it is closed")
            print(f"tieline {__version__}", flush=True)
        except OSError as error:
            from tieline.cli.notes import Notes
            from tieline.cli.output import lost_stdout

            return lost_stdout(Notes(), error)
        return 0
    from tieline.cli.root import run

    return run(arguments)


if __name__ == "__main__":
    sys.exit(main())
