"""The deployment's address: who listens there, and short questions to it over HTTP."""

from __future__ import annotations

import ipaddress
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING

from optagent.tools.deployment import Deployment
from optagent.tools.exhausted import stop_if_exhausted
from optagent.tools.processes import command_line

if TYPE_CHECKING:
    import httpx

ANYWHERE = ("", "0.0.0.0", "::")


@dataclass(frozen=True)
class Address:
    host: str
    port: int

    @property
    def url(self) -> str:
        """The base URL under which this machine reaches it."""
        host = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}.get(self.host, self.host)
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"

    @property
    def local(self) -> bool:
        """Whether it is an address of this machine, so that a server on it is a process here."""
        if self.host in (*ANYWHERE, "localhost"):
            return True
        try:
            with socket.socket(socket.AF_INET6 if ":" in self.host else socket.AF_INET) as probe:
                probe.bind((self.host, 0))  # only an own address can be bound
        except OSError:
            return False
        return True


@dataclass(frozen=True)
class Listener:
    """Who listens on a port. `pid` is None when the process belongs to somebody whose files we may not read."""

    host: str
    pid: int | None


def address_of(deployment: Deployment) -> Address:
    return Address(deployment.host, deployment.port)


def listeners(address: Address) -> list[Listener]:
    """Everything on this machine that listens where `address` would, or would keep it from being bound."""
    import psutil

    return [
        Listener(connection.laddr.ip, connection.pid)
        for connection in psutil.net_connections(kind="tcp")
        if connection.status == psutil.CONN_LISTEN
        and connection.laddr
        and connection.laddr.port == address.port
        and _overlap(connection.laddr.ip, address.host)
    ]


def free_port() -> int:
    """A port on this machine that nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def port_holder(address: Address) -> str | None:
    """Who listens where the server should, in words; None when nobody does."""
    found = listeners(address)
    return held_by(address, found[0]) if found else None


def held_by(address: Address, listener: Listener) -> str:
    pid = listener.pid
    who = f"pid {pid} ({command_line(pid)[:200]})" if pid is not None else "a process of another user"
    return f"port {address.port} is held by {who}"


def client(address_or_url: Address | str, timeout_s: float) -> httpx.Client:
    """An HTTP client for a server, with as many connections as are asked for at once. To this machine it goes directly,
    whatever proxy the environment names."""
    import httpx

    url = address_or_url.url if isinstance(address_or_url, Address) else address_or_url
    direct = _is_loopback(httpx.URL(url).host)
    limits = httpx.Limits(max_connections=None)
    return httpx.Client(base_url=url, timeout=timeout_s, trust_env=not direct, limits=limits)


def healthy(address: Address, timeout_s: float) -> bool:
    """Whether /health answers 200 in time. Raises MachineExhausted when this machine cannot ask."""
    import httpx

    try:
        with client(address, timeout_s) as http:
            return http.get("/health").status_code == 200
    except httpx.HTTPError as error:
        stop_if_exhausted(error, address.url)
        return False


def generates(address: Address, timeout_s: float) -> bool:
    """Whether the server answers a request for one token. Raises MachineExhausted when this machine cannot ask."""
    import httpx

    body = {"text": "Hello", "sampling_params": {"temperature": 0, "max_new_tokens": 1}}
    try:
        with client(address, timeout_s) as http:
            return http.post("/generate", json=body).status_code == 200
    except httpx.HTTPError as error:
        stop_if_exhausted(error, address.url)
        return False


def _overlap(bound: str, wanted: str) -> bool:
    if bound in ANYWHERE or wanted in ANYWHERE:
        return True
    return _plain(bound) == _plain(wanted)


def _plain(host: str) -> str:
    host = "127.0.0.1" if host == "localhost" else host
    return host.removeprefix("::ffff:")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
