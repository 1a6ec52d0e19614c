"""Files that commands write: whole, or not at all; and whether others can read one."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final, cast

from tieline.cli.errors import CliError

__all__ = ["FILES", "exposure", "replacing"]

FILES: Final = "TIELINE_ERR_FILES"  # ours: a file could not be written, or read


def exposure(path: Path, holds: str) -> str | None:
    """What to warn of when other users can read a file, which `holds` something secret; None where they cannot.

    Raises OSError.
    """
    if os.name != "posix" or not path.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH):
        return None
    return f"{path} holds {holds} and others can read it: chmod 600 {path}"


@contextlib.contextmanager
def replacing(path: Path, *, private: bool = False) -> Iterator[BinaryIO]:
    """A file that becomes `path` when it is whole: never half of one, never through a link that stands there.

    `private`: readable by its owner alone, whatever the umask. Raises CliError.
    """
    name: str | None = None
    try:
        with tempfile.NamedTemporaryFile(prefix=".tieline-", dir=path.parent, delete=False) as out:
            name = out.name
            yield cast("BinaryIO", out)
        if not private:
            os.chmod(name, 0o666 & ~_umask())
        os.replace(name, path)
        name = None
    except OSError as error:
        raise CliError(FILES, f"{path} cannot be written: {error.strerror or error}.") from None
    finally:
        if name is not None:
            os.unlink(name)


def _umask() -> int:
    current = os.umask(0o077)
    os.umask(current)
    return current
