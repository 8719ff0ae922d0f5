"""What is seen from inside a box: which paths of the host are shown, which are hidden, which files are made.

The harness computes this before a box exists, so that a view that cannot be had is refused with a reason. A
secret below a shown directory is covered in a namespace. Landlock can cover nothing: there the directory is
shown entry by entry, and its names can be listed.
"""

import fnmatch
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from codegenie.eval.boxes.places import HOST_NAME, IN_A_NAMESPACE, USER
from codegenie.eval.boxes.request import BoxView, Network
from codegenie.eval.errors import SutSpecInvalid
from codegenie.eval.limits import LIMITS

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt")
# By list, because other files of /etc may hold credentials: gitconfig, npmrc, pip.conf, netrc, environment.
_ETC = (
    *("alternatives", "bash.bashrc", "ca-certificates", "ca-certificates.conf", "crypto-policies", "fonts"),
    *("host.conf", "inputrc", "java-*", "ld.so.*", "locale.alias", "localtime", "magic*", "mime.types"),
    *("nsswitch.conf", "os-release", "pki", "profile", "protocols", "python3*", "rpc", "services", "shells"),
    *("ssl", "terminfo", "timezone", "xattr.conf"),
)
# Without a mount namespace these are the host's own.
_ETC_OF_THE_HOST = ("group", "hosts", "passwd")
_RESOLVER = "/etc/resolv.conf"
_NOT_SHOWN = ("/proc", "/dev", "/sys", "/etc")
_PRIVATE = (IN_A_NAMESPACE.workspace, IN_A_NAMESPACE.home, IN_A_NAMESPACE.tmp, IN_A_NAMESPACE.agent)
_LARGEST_RESOLVER_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Layout:
    """What a new root consists of. No path of `shown` lies below another."""

    shown: tuple[str, ...]
    # Those below a private directory, which is mounted first.
    shown_in_private: tuple[str, ...]
    links: dict[str, str]
    links_in_private: dict[str, str]
    hidden: tuple[str, ...]
    files: dict[str, str]

    def message(self) -> dict[str, object]:
        """Return it as plain data, for the process that builds the root."""
        return {
            "shown": self.shown,
            "shown_in_private": self.shown_in_private,
            "links": self.links,
            "links_in_private": self.links_in_private,
            "hidden": self.hidden,
            "files": self.files,
        }


def new_root(view: BoxView) -> Layout:
    """Return the root of a box in a mount namespace. Raises SutSpecInvalid if the view cannot be had."""
    check(view)
    system, links = _system_paths()
    entries, opened_links = _opened(_topmost(view.readable), view.secrets)
    shown = _topmost([*system, *entries])
    return Layout(
        shown=tuple(path for path in shown if not _is_private(path)),
        shown_in_private=tuple(filter(_is_private, shown)),
        links=links | {path: to for path, to in opened_links.items() if not _is_private(path)},
        links_in_private={path: to for path, to in opened_links.items() if _is_private(path)},
        # Of a secret in another one nothing is left when that one is covered.
        hidden=tuple(
            _topmost(path for path in view.secrets if _is_in_one_of(path, shown) and os.path.lexists(path))
        ),
        files=_made_files(view.network),
    )


def _is_private(path: str) -> bool:
    return any(is_below(path, each) for each in _PRIVATE)


def _opened(paths: Sequence[str], secrets: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Return paths with the entries of a directory in its place if the user of the box cannot enter it.

    Boxes of root belong to another user, and temporary directories are closed to others. Of such a directory
    a box shows the entries, in a directory of its own: their modes decide. No mode of the host is changed.
    Also returns the links in it.
    """
    shown: list[str] = []
    links: dict[str, str] = {}
    for path in paths:
        if os.geteuid() != 0 or not os.path.isdir(path) or is_open(path):
            shown.append(path)
            continue
        entries = [entry for entry in os.scandir(path) if entry.path not in secrets]
        if len(entries) > LIMITS.closed_directory_entries:
            raise SutSpecInvalid(
                f"the user of the box cannot enter {path}, which is closed to other users,"
                f" and it has more than {LIMITS.closed_directory_entries} entries",
                where="readable",
                hint="`chmod o+rx` it, or move the agent to another directory",
            )
        links |= {entry.path: os.readlink(entry.path) for entry in entries if entry.is_symlink()}
        shown += [
            entry.path
            for entry in entries
            if entry.is_dir(follow_symlinks=False) or entry.is_file(follow_symlinks=False)
        ]
    return shown, links


def is_open(directory: str) -> bool:
    """Say whether mode bits let every user list a directory and walk through it."""
    wanted = stat.S_IXOTH | stat.S_IROTH
    return os.stat(directory).st_mode & wanted == wanted


def readable_places(view: BoxView) -> tuple[list[str], list[str]]:
    """Return which paths may be read with everything below them, and which may only be listed."""
    check(view)
    system, _ = _system_paths()
    host = [f"/etc/{name}" for name in _ETC_OF_THE_HOST]
    if view.network == "host":
        host.append(os.path.realpath(_RESOLVER))
    whole: list[str] = []
    listed: list[str] = []
    secrets = [path for path in view.secrets if os.path.lexists(path)]
    for path in _topmost([*system, *filter(os.path.exists, host), *view.readable]):
        for place, is_whole in _around(path, secrets):
            (whole if is_whole else listed).append(place)
    return whole, listed


def check(view: BoxView) -> None:
    """Raise SutSpecInvalid if a path cannot be shown."""
    for path in view.readable:
        problem = _problem(path)
        if problem:
            raise SutSpecInvalid(f"the box cannot show {path}: {problem}", where="readable")
    system, _ = _system_paths()
    for path in (*system, *view.readable):
        secret = next((each for each in view.secrets if path == each or is_below(path, each)), None)
        if secret is not None:
            raise SutSpecInvalid(
                f"the box cannot show {path}: it lies in {secret}, which an agent must not see",
                where="readable",
                hint="install the agent outside of the bench, the log and the cache",
            )


def is_below(path: str, directory: str) -> bool:
    """Return whether a path lies in a directory, at any depth."""
    return path.startswith(f"{directory.rstrip('/')}/") and path != directory


def _problem(path: str) -> str | None:
    if not os.path.isabs(path) or os.path.normpath(path) != path or "\0" in path:
        return "it is not an absolute path in its plain form"
    if path == "/" or path in _NOT_SHOWN or any(is_below(path, each) for each in _NOT_SHOWN[:3]):
        return "the box has its own"
    covered = any(is_below(path, each) for each in (IN_A_NAMESPACE.workspace, IN_A_NAMESPACE.agent))
    if covered or path in _PRIVATE or any(is_below(each, path) for each in _PRIVATE):
        return "the box has private directories there"
    if not os.path.exists(path):
        return "it does not exist"
    if os.path.realpath(path) != path:
        return f"it leads through a link; its real path is {os.path.realpath(path)}"
    return None


@cache
def _system_paths() -> tuple[list[str], dict[str, str]]:
    """Return what exists of the system's paths, and which of them are links; looked up once."""
    listed = sorted(os.listdir("/etc")) if os.path.isdir("/etc") else []
    of_etc = [f"/etc/{name}" for name in listed if any(fnmatch.fnmatchcase(name, each) for each in _ETC)]
    found = [path for path in (*_SYSTEM, *of_etc) if os.path.lexists(path)]
    links = {path: os.readlink(path) for path in found if os.path.islink(path)}
    return [path for path in found if path not in links], links


def _topmost(paths: Iterable[str]) -> list[str]:
    """Return the paths that lie below none of the others, in order."""
    found: list[str] = []
    for path in sorted(set(paths), key=lambda each: (each.count("/"), each)):
        if not _is_in_one_of(path, found):
            found.append(path)
    return sorted(found)


def _is_in_one_of(path: str, directories: Sequence[str]) -> bool:
    return any(path == each or is_below(path, each) for each in directories)


def _around(path: str, secrets: Sequence[str]) -> Iterator[tuple[str, bool]]:
    """Yield the places that show a path without the secrets in it, and whether each is shown whole.

    Links are left out: a rule on a link would be a rule on its target.
    """
    inside = [each for each in secrets if is_below(each, path)]
    if path in secrets:
        return
    if not inside:
        yield path, True
        return
    yield path, False
    for entry in sorted(os.scandir(path), key=lambda each: each.name):
        if not entry.is_symlink():
            yield from _around(entry.path, inside)


def _made_files(network: Network) -> dict[str, str]:
    return {
        "/etc/passwd": f"agent:x:{USER}:{USER}:agent:{IN_A_NAMESPACE.home}:/bin/bash\n",
        "/etc/group": f"agent:x:{USER}:\n",
        "/etc/hosts": f"127.0.0.1 localhost {HOST_NAME}\n::1 localhost\n",
        "/etc/hostname": f"{HOST_NAME}\n",
        _RESOLVER: _resolver() if network == "host" else "",
    }


def _resolver() -> str:
    try:
        with open(_RESOLVER, encoding="utf-8", errors="replace") as file:
            return file.read(_LARGEST_RESOLVER_BYTES)
    except OSError:
        return ""
