"""Files that commands write: whole, or not at all."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final, cast

from tieline.cli.errors import CliError

__all__ = ["FILES", "replacing"]

FILES: Final = "TIELINE_ERR_FILES"  # ours: a file could not be written, or read


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
