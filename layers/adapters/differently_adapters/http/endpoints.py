"""Which addresses an operator's or a backend's URL may lead to.

An endpoint is checked twice: its text when a pool is configured, without any I/O, and every address of its host when a
connection is made, which then goes to exactly the address that was checked. So no spelling of an address and no name
server gets us to connect to a metadata service, and private networks are reached only by pools that say so.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Final

from differently_core.errors import InvalidRequest

URL_CHARACTERS_MAX: Final = 2_048
HOST_CHARACTERS_MAX: Final = 253
PORTS: Final = {"http": 80, "https": 443}


@dataclass(frozen=True)
class EndpointRules:
    """What a pool opted in to. Link-local and metadata addresses are refused whatever it says."""

    http: bool = False
    """Plain http, where nothing proves who answers and anybody on the way reads along."""
    private: bool = False
    """Networks of one's own: RFC 1918, carrier-grade NAT, unique local IPv6."""
    loopback: bool = False
    """This very machine."""


PUBLIC: Final = EndpointRules()


@dataclass(frozen=True)
class Endpoint:
    """A checked base URL. `host` is in lower case and without brackets, `path` does not end in a slash."""

    scheme: str
    host: str
    port: int
    path: str

    @property
    def authority(self) -> str:
        """Host and port as a URL has them."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.authority}{self.path}"


class Place(StrEnum):
    """Where an address lies."""

    PUBLIC = "public"
    PRIVATE = "private"
    LOOPBACK = "loopback"
    LINK_LOCAL = "link-local"
    METADATA = "metadata"
    RESERVED = "reserved"


class AddressRefused(Exception):
    """A host leads to an address that the pool may not reach. Nothing was sent."""

    def __init__(self, place: Place) -> None:
        super().__init__(f"a {place} address")
        self.place = place


@dataclass(frozen=True)
class Target:
    """A checked URL that is sent to as it was written: its path and query are somebody else's business."""

    endpoint: Endpoint
    """Without a path."""
    path: str
    """With the query."""

    @property
    def url(self) -> str:
        return f"{self.endpoint.url}{self.path}"


@dataclass(frozen=True)
class _Words:
    """What a refusal says: of what, and how each exception is had, if it is."""

    subject: str
    field: str
    http: str = ""
    private: str = ""
    loopback: str = ""
    others: str = "which nothing here may reach"


_OF_POOL: Final = _Words(
    "This endpoint", "config.endpoint", "plain http needs the pool's allowHttp", "which needs the pool's allowPrivate",
    "which needs the pool's allowLoopback", "which no pool may reach",
)  # fmt: skip
_OF_WEBHOOK: Final = _Words(
    "This URL", "url", "plain http tells everybody on the way", *["which no webhook may reach"] * 3
)  # fmt: skip


def configured_endpoint(text: str, rules: EndpointRules, field: str) -> Endpoint:
    """The endpoint that a field of a pool's configuration names; raises `InvalidRequest` for this field."""
    try:
        return parse_endpoint(text, rules)
    except InvalidRequest as error:
        error.details["field"] = field
        raise


def parse_endpoint(text: str, rules: EndpointRules = PUBLIC) -> Endpoint:
    """The endpoint that `text` names; raises `InvalidRequest` saying what is wrong, without repeating the text."""
    return _parse(text, rules, _OF_POOL)


def parse_target(text: str, rules: EndpointRules = PUBLIC) -> Target:
    """The URL of a webhook; raises `InvalidRequest` likewise.

    Its path may end in a slash and it may have a query, which some receivers know their senders by. With `rules.http`
    plain http is taken for loopback alone: nothing that leaves this machine is sent in clear.
    """
    address, mark, query = text.partition("?")
    checked = _parse(address, rules, _OF_WEBHOOK)
    if mark and not re.fullmatch(r"(?:[A-Za-z0-9._~!$&'()*+,;=:@%/?-])*", query):
        raise _wrong("its query has characters that a query cannot have", _OF_WEBHOOK)
    if checked.scheme == "http" and _place(checked.host) is not Place.LOOPBACK:
        raise _wrong("it must begin with https://", _OF_WEBHOOK)
    slash = "/" if address.endswith("/") else ""
    path = f"{checked.path}{slash or ('' if checked.path else '/')}"
    return Target(Endpoint(checked.scheme, checked.host, checked.port, ""), f"{path}{mark}{query}")


def _parse(text: str, rules: EndpointRules, words: _Words) -> Endpoint:
    if len(text) > URL_CHARACTERS_MAX or not re.fullmatch(r"[\x21-\x7e]+", text) or "\\" in text:
        raise _wrong("it must be a URL in plain ASCII, without spaces or backslashes (an IDN in its xn-- form)", words)
    parts = re.fullmatch(r"(?P<scheme>[A-Za-z]+)://(?P<authority>[^/?#]*)(?P<path>[^?#]*)(?P<rest>.*)", text)
    if parts is None:
        raise _wrong("it must be a URL such as https://host.example:8443", words)
    scheme = parts["scheme"].lower()
    if scheme not in PORTS:
        raise _wrong("it must begin with https://", words)
    if scheme == "http" and not rules.http:
        raise _wrong(f"it must begin with https://; {words.http}", words)
    if "@" in parts["authority"]:
        raise _wrong("it must not hold a user name or password; store a credential instead", words)
    if parts["rest"]:
        raise _wrong("it must not have a query or a fragment", words)
    host, port = _host_and_port(parts["authority"], PORTS[scheme], words)
    _check_host(host, rules, words)
    return Endpoint(scheme, host, port, _path(parts["path"], words))


def _wrong(why: str, words: _Words) -> InvalidRequest:
    return InvalidRequest(f"{words.subject} cannot be used: {why}.", field=words.field)


def _host_and_port(authority: str, default: int, words: _Words) -> tuple[str, int]:
    parts = re.fullmatch(r"(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<name>[^\[\]:%]+))(?::(?P<port>[0-9]{1,5}))?", authority)
    if parts is None:
        raise _wrong("its host and port cannot be read (an IPv6 address needs brackets and has no zone)", words)
    port = int(parts["port"]) if parts["port"] is not None else default
    if not 1 <= port <= 65_535:
        raise _wrong("its port must be from 1 to 65535", words)
    if parts["v6"] is not None:
        try:
            return str(IPv6Address(parts["v6"])), port
        except ValueError:
            raise _wrong("its IPv6 address cannot be read", words) from None
    return _name(parts["name"].lower(), words), port


def _name(name: str, words: _Words) -> str:
    """A host name, or an IPv4 address in its one usual form: the others (decimal, octal, hex, short) only hide it."""
    name = name.removesuffix(".")
    labels = name.split(".")
    if re.fullmatch(r"[0-9]+|0x[0-9a-f]*", labels[-1]):
        try:
            return str(IPv4Address(name))
        except ValueError:
            raise _wrong("an IPv4 address must be written as four decimal numbers", words) from None
    if len(name) > HOST_CHARACTERS_MAX or not all(
        re.fullmatch(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?", label) for label in labels
    ):
        raise _wrong("its host name is not one", words)
    return name


def _check_host(host: str, rules: EndpointRules, words: _Words) -> None:
    place = _place(host)
    if not permitted(place, rules):
        raise _wrong(_why(place, words), words)


def _place(host: str) -> Place:
    address = _address(host)
    return _place_of_name(host) if address is None else place_of(address)


def _why(place: Place, words: _Words) -> str:
    match place:
        case Place.PRIVATE:
            return f"its host is in a private network, {words.private}"
        case Place.LOOPBACK:
            return f"its host is this machine, {words.loopback}"
        case _:
            return f"its host is a {place} address, {words.others}"


def _address(host: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(host)
    except ValueError:
        return None


def _place_of_name(name: str) -> Place:
    """What a name says before it is resolved; its addresses are looked at all the same when a connection is made."""
    if name == "localhost" or name.endswith(".localhost"):
        return Place.LOOPBACK
    if name in METADATA_NAMES:
        return Place.METADATA
    return Place.PUBLIC


def _path(path: str, words: _Words) -> str:
    if not re.fullmatch(r"(?:/[A-Za-z0-9/._~!$&'()*+,;=:@%-]*)?", path) or re.search(r"%(?![0-9A-Fa-f]{2})", path):
        raise _wrong("its path has characters that a path cannot have", words)
    path = path.rstrip("/")
    decoded = re.sub("%2e", ".", path, flags=re.IGNORECASE)
    if "//" in path or any(segment in {".", ".."} for segment in decoded.split("/")):
        raise _wrong("its path must not have empty or dot segments", words)
    if re.search("%2f|%5c|%00", path, re.IGNORECASE):
        raise _wrong("its path must not have encoded slashes or NUL characters", words)
    return path


def permitted(place: Place, rules: EndpointRules) -> bool:
    match place:
        case Place.PUBLIC:
            return True
        case Place.PRIVATE:
            return rules.private
        case Place.LOOPBACK:
            return rules.loopback
        case _:
            return False


METADATA_NAMES: Final = frozenset(
    {
        "metadata", "metadata.google.internal", "metadata.goog", "instance-data", "instance-data.ec2.internal",
        "metadata.azure.internal", "metadata.tencentyun.com",
    }
)  # fmt: skip

_V4: Final = [
    (IPv4Network(network), place)
    for network, place in (
        ("100.100.100.200/32", Place.METADATA),  # Alibaba Cloud, inside carrier-grade NAT
        ("168.63.129.16/32", Place.METADATA),  # Azure's own service address, which looks public
        ("192.0.0.192/32", Place.METADATA),  # Oracle Cloud
        ("0.0.0.0/8", Place.RESERVED),
        ("127.0.0.0/8", Place.LOOPBACK),
        ("169.254.0.0/16", Place.LINK_LOCAL),  # among them 169.254.169.254 and those of ECS, EKS and Lambda
        ("10.0.0.0/8", Place.PRIVATE),
        ("100.64.0.0/10", Place.PRIVATE),
        ("172.16.0.0/12", Place.PRIVATE),
        ("192.168.0.0/16", Place.PRIVATE),
        ("198.18.0.0/15", Place.PRIVATE),
        ("192.0.0.0/24", Place.RESERVED),
        ("192.0.2.0/24", Place.RESERVED),
        ("192.88.99.0/24", Place.RESERVED),
        ("198.51.100.0/24", Place.RESERVED),
        ("203.0.113.0/24", Place.RESERVED),
        ("224.0.0.0/4", Place.RESERVED),
        ("240.0.0.0/4", Place.RESERVED),
    )
]
_V6: Final = [
    (IPv6Network(network), place)
    for network, place in (
        ("::1/128", Place.LOOPBACK),
        ("fd00:ec2::/32", Place.METADATA),  # AWS, in its own corner of the unique local addresses
        ("fd20:ce::254/128", Place.METADATA),  # Google Cloud
        ("fe80::/10", Place.LINK_LOCAL),
        ("fc00::/7", Place.PRIVATE),
        ("fec0::/10", Place.PRIVATE),
        ("64:ff9b:1::/48", Place.RESERVED),  # local translation: where it leads only its network knows
        ("2001::/23", Place.RESERVED),  # Teredo and others that wrap an address in a way of their own
        ("2001:db8::/32", Place.RESERVED),
        ("3fff::/20", Place.RESERVED),
    )
]
_GLOBAL_V6: Final = IPv6Network("2000::/3")
_V4_INSIDE: Final = [
    (IPv6Network("::ffff:0:0/96"), 0),  # mapped
    (IPv6Network("64:ff9b::/96"), 0),  # NAT64
    (IPv6Network("2002::/16"), 80),  # 6to4 has it in the middle
]


def place_of(address: IPv4Address | IPv6Address) -> Place:
    """Where an address lies; one that carries another address lies where that one does."""
    if isinstance(address, IPv4Address):
        return next((place for network, place in _V4 if address in network), Place.PUBLIC)
    for wrapper, shift in _V4_INSIDE:
        if address in wrapper:
            return place_of(IPv4Address(int(address) >> shift & 0xFFFF_FFFF))
    known = next((place for network, place in _V6 if address in network), None)
    if known is not None:
        return known
    return Place.PUBLIC if address in _GLOBAL_V6 else Place.RESERVED


def check_addresses(addresses: list[str], rules: EndpointRules) -> list[str]:
    """The addresses a host leads to, if the pool may reach every one of them; raises `AddressRefused` otherwise."""
    for text in addresses:
        place = place_of(ip_address(text.partition("%")[0]))
        if not permitted(place, rules):
            raise AddressRefused(place)
    return addresses
