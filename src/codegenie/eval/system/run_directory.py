"""The private directory of one run, which is removed when the run ends."""

import logging
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from codegenie.eval.errors import HarnessFailure
from codegenie.eval.limits import LIMITS
from codegenie.eval.system.removal import Unfinished, remove_tree

_LOG = logging.getLogger(__name__)


RUN_DIRECTORY_PREFIX = "codegenie-eval-"


@contextmanager
def run_directory() -> Iterator[Path]:
    """Give one directory with mode 0700 for a run; it is removed however the run ends.

    Raises HarnessFailure if it cannot be made.
    """
    try:
        path = tempfile.mkdtemp(prefix=RUN_DIRECTORY_PREFIX)
    except OSError as error:
        raise HarnessFailure(f"cannot make a directory for the run: {error}", hint="set TMPDIR") from None
    try:
        yield Path(path)
    finally:
        # As root a rubric can make a file immutable. The measurement is worth more than a clean TMPDIR, so a
        # failure is logged and not raised.
        deadline = time.monotonic() + LIMITS.removal_seconds
        try:
            remove_tree(path, lambda: time.monotonic() < deadline)
        except FileNotFoundError:
            pass
        except Unfinished:
            _LOG.warning("the directory of the run is too large to remove, and stays behind: %s", path)
        except OSError as error:
            _LOG.warning("the directory of the run stays behind: %s: %s", error.strerror, path)
