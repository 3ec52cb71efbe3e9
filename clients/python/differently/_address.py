"""Where requests may go: an address is taken apart and put together again, so what is checked is what is used."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from ._failure import ConfigurationError

_HOST = re.compile(r"[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]")
_ODD = re.compile(r"[\x00-\x20\x7f\\]")


@dataclass(frozen=True)
class Address:
    """A base address without a slash at its end."""

    url: str
    is_loopback: bool


def address(text: str) -> Address:
    """The address that was meant, or a ConfigurationError. A key goes unencrypted to this machine alone."""
    if _ODD.search(text.strip()):
        raise _wrong("holds a character that no address has")
    try:
        parts = urlsplit(text.strip())
        port = parts.port
    except ValueError:
        raise _wrong("cannot be read") from None
    if parts.scheme not in ("http", "https"):
        raise _wrong("must begin with https:// (or http:// on this machine)")
    if "@" in parts.netloc:
        raise _wrong("must not hold a name or password: the key is given by itself")
    host = parts.netloc if port is None else parts.netloc.rpartition(":")[0]
    host = host.rstrip(":") if not host.endswith("]:") else host[:-1]
    if not _HOST.fullmatch(host):
        raise _wrong("has no usable host")
    if parts.query or parts.fragment:
        raise _wrong("must end with its path: a query or fragment has no place in it")
    loopback = is_loopback(host.strip("[]"))
    if parts.scheme == "http" and not loopback:
        raise ConfigurationError(f"A key would be sent to {host} unencrypted. Use https://{host}.")
    path = (
        parts.path.rstrip("/").removesuffix("/v1").rstrip("/")
    )  # the version belongs to each path, and is often pasted
    return Address(f"{parts.scheme}://{host.lower()}{'' if port is None else f':{port}'}{path}", loopback)


def is_private_way(scheme: str, host: str) -> bool:
    """Whether nobody on the way can read what is sent there."""
    return bool(host) and (scheme == "https" or (scheme == "http" and is_loopback(host)))


def is_loopback(host: str) -> bool:
    """This machine, by `localhost` or by an address; a name that merely looks like one is a name."""
    if host.lower() == "localhost":
        return True
    try:
        found = ipaddress.ip_address(host)
    except ValueError:
        return False
    return found.is_loopback and getattr(found, "ipv4_mapped", None) is None


def _wrong(why: str) -> ConfigurationError:
    return ConfigurationError(f"The address of the API {why}. It looks like https://sandboxes.example.com.")
