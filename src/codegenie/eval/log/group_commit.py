"""Group commit: lines that are ready together are written by one call and share one fdatasync.

A caller that must know that its line is on the disk waits (`append`); others go on (`put`, `note`). The lines
of one turn of the event loop form a group. While a group is being synced, new lines wait and form the next
one, so lines reach the file in the order in which they were given.

If all slots wait for the disk, the harness has nothing else to do and syncs at once. If another slot is
working, a thread waits for the disk instead, and the event loop goes on.

After the first failure nothing more is written: a full disk may have torn a line, and only a torn end can be
dropped. Each caller that waits gets the failure.
"""

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

_Waiting = tuple[bytes, "asyncio.Future[None] | None"]


class GroupCommit:
    """Writes lines to an open file in groups. `slots` is the number of callers that may wait at once."""

    def __init__(self, descriptor: int, write: Callable[[list[bytes]], None], slots: int) -> None:
        self._descriptor = descriptor
        self._write = write
        self._slots = slots
        self._waiting: list[_Waiting] = []
        self._syncing = False
        self._thread: ThreadPoolExecutor | None = None
        self.failure: OSError | None = None

    async def append(self, line: bytes) -> None:
        """Write a line; return when it and all lines before it are on the disk. Raises OSError."""
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._add(line, written)
        await written

    def put(self, line: bytes) -> None:
        """Write a line with the next group. If that fails, the next `append` raises the failure."""
        self._add(line, None)

    def note(self, line: bytes) -> None:
        """Write a line at once. The next sync covers it."""
        if self._syncing or self._waiting:
            self._waiting.append((line, None))
        else:
            self._attempt(partial(self._write, [line]))

    def finish(self) -> None:
        """Write what still waits, and sync it."""
        waiting, self._waiting = self._waiting, []
        if waiting:
            self._attempt(partial(self._write_and_sync, waiting))
        self._tell(waiting)

    def close(self) -> None:
        """Wait for the thread: once the file is closed, its number may soon belong to another file."""
        if self._thread is not None:
            self._thread.shutdown()

    def _add(self, line: bytes, written: "asyncio.Future[None] | None") -> None:
        if not self._waiting and not self._syncing:
            loop = asyncio.get_running_loop()
            # Flush two loop turns later, so that a slot which put a measurement can add what it asks next.
            loop.call_soon(loop.call_soon, self._flush)
        self._waiting.append((line, written))

    def _flush(self) -> None:
        """Write all waiting lines with one call and one sync."""
        if sum(written is not None for _, written in self._waiting) >= self._slots:
            self.finish()
            return
        waiting, self._waiting = self._waiting, []
        if waiting:
            self._attempt(lambda: self._write([line for line, _ in waiting]))
        if waiting and self.failure is None:
            self._sync_in_thread(waiting)
        else:
            self._tell(waiting)

    def _write_and_sync(self, waiting: list[_Waiting]) -> None:
        self._write([line for line, _ in waiting])
        os.fdatasync(self._descriptor)

    def _attempt(self, work: Callable[[], None]) -> None:
        if self.failure is None:
            try:
                work()
            except OSError as error:
                self.failure = error

    def _sync_in_thread(self, waiting: list[_Waiting]) -> None:
        """Wait for the disk in a thread. Lines that arrive meanwhile are written together afterwards."""
        self._thread = self._thread or ThreadPoolExecutor(max_workers=1)
        self._syncing = True
        synced = asyncio.get_running_loop().run_in_executor(self._thread, os.fdatasync, self._descriptor)
        synced.add_done_callback(partial(self._synced, waiting))

    def _synced(self, waiting: list[_Waiting], synced: "asyncio.Future[None]") -> None:
        self._syncing = False
        error = None if synced.cancelled() else synced.exception()
        if isinstance(error, OSError):
            self.failure = error
        self._tell(waiting)
        if self._waiting:
            self._flush()

    def _tell(self, waiting: list[_Waiting]) -> None:
        """Tell the callers of these lines that they are on the disk, or that they could not be written."""
        for _, written in waiting:
            if written is None or written.done():
                continue
            if self.failure is None:
                written.set_result(None)
            else:
                written.set_exception(self.failure)
