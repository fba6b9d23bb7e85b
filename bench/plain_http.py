"""HTTP over a plain socket: a caller that leaves nearly all of the CPU to the servers that are measured."""

import socket
from collections.abc import Mapping

NO_CONTENT = 204


def post(path: str, headers: Mapping[str, str], body: bytes = b"") -> bytes:
    """A whole request, for `ask`."""
    lines = [f"POST {path} HTTP/1.1", "Host: 127.0.0.1", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""]).encode() + body


def ask(line: socket.socket, request: bytes) -> tuple[int, bytes]:
    """Status and body of the answer to `request`, a whole request of HTTP/1.1; the connection stays open.

    Raises:
        ConnectionError: the server closed it.
    """
    line.sendall(request)
    head, found, body = b"", b"", b""
    while not found:
        head += _more(line)
        head, found, body = head.partition(b"\r\n\r\n")
    status = int(head.split(b" ", 2)[1])
    if status == NO_CONTENT:
        return status, b""
    lower = head.lower()
    length = int(lower[lower.index(b"content-length:") + 15 :].split(b"\r\n")[0])
    parts, left = [body], length - len(body)
    while left:
        parts.append(_more(line))
        left -= len(parts[-1])
    return status, b"".join(parts)


def _more(line: socket.socket) -> bytes:
    data = line.recv(65536)
    if not data:
        raise ConnectionError("The server closed the connection.")
    return data
