"""The other ranks as child processes."""

from __future__ import annotations

import signal
import socket
import struct
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from threading import Thread

WORKER = "warmgraph_engine.parallel.worker"
"""Not imported: it knows the backends, which this process may not need yet."""

SEND_SECONDS = 10
"""A rank that takes no bytes for so long is stopped: its socket's buffer holds many messages."""

END_SECONDS = 5.0
"""From a closed socket to the end of a rank that is not in the middle of something."""


@dataclass(frozen=True, slots=True)
class Child:
    """One rank: its process, and the sockets for messages and for file descriptors."""

    rank: int
    process: subprocess.Popen[bytes]
    messages: socket.socket
    descriptors: socket.socket

    def kill(self) -> None:
        """Also one that is stopped."""
        self.process.kill()

    def ended(self) -> str:
        """How its process ended, for people: its socket is closed, so it has, or soon will."""
        try:
            status = self.process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            return "closed its socket"
        if status >= 0:
            return f"ended with status {status}"
        return f"was ended by signal {-status} ({signal.Signals(-status).name})"


def spawn(rank: int, ranks: int, progress: int) -> Child:
    """Start a rank with the interpreter and the environment of this one; `progress` is the
    descriptor of the page it writes to (progress.py)."""
    messages, theirs = socket.socketpair()
    descriptors, their_descriptors = socket.socketpair()
    passed = (theirs.fileno(), their_descriptors.fileno(), progress)
    command = [sys.executable, "-m", WORKER]
    with theirs, their_descriptors:
        process = subprocess.Popen(
            [*command, *map(str, (rank, ranks, *passed))],
            pass_fds=passed,
            stdin=subprocess.DEVNULL,
            # Signals of a terminal are for rank 0, which ends the others in its own time.
            process_group=0,
        )
    patience = struct.pack("ll", SEND_SECONDS, 0)
    messages.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, patience)
    return Child(rank, process, messages, descriptors)


def collect(own: int, children: list[Child], timeout_seconds: float) -> list[int]:
    """Every rank's descriptor, to all ranks: rank 0's part of Peers.exchange."""
    found = [own]
    for child in children:
        child.descriptors.settimeout(timeout_seconds)
        try:
            _, received, _, _ = socket.recv_fds(child.descriptors, 1, 1)
        except TimeoutError:
            received = []
        if not received:
            raise RuntimeError(f"rank {child.rank} has not offered its memory")
        found += received
    for child in children:
        socket.send_fds(child.descriptors, [b"d"], found)
    return found


def end(children: list[Child]) -> None:
    """Close their sockets, which tells them to end, and see to it that they do."""
    for child in children:
        # Not close: a thread may be reading.
        with suppress(OSError):  # it is gone already
            child.messages.shutdown(socket.SHUT_RDWR)
        child.descriptors.close()

    def wait(child: Child) -> None:
        try:
            child.process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            child.kill()
            child.process.wait()

    waiting = [Thread(target=wait, args=(child,)) for child in children]
    for thread in waiting:
        thread.start()
    for thread in waiting:
        thread.join()
