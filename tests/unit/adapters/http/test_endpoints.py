"""Which URLs a pool may be pointed at, and which addresses its connections may go to."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from differently_adapters.http import PUBLIC, EndpointRules, Place, parse_endpoint, permitted, place_of
from differently_adapters.http.endpoints import AddressRefused, check_addresses
from differently_adapters.registry import parse_config
from differently_core.errors import InvalidRequest

HTTP = EndpointRules(http=True)
PRIVATE = EndpointRules(private=True)
LOOPBACK = EndpointRules(loopback=True)
EVERYTHING = EndpointRules(http=True, private=True, loopback=True)

ACCEPTED = [
    ("https://api.example.com", PUBLIC, "https://api.example.com"),
    ("https://api.example.com/", PUBLIC, "https://api.example.com"),
    ("https://API.Example.COM:443/v1/", PUBLIC, "https://api.example.com/v1"),
    ("https://api.example.com:8443/a/b", PUBLIC, "https://api.example.com:8443/a/b"),
    ("https://api.example.com.", PUBLIC, "https://api.example.com"),
    ("HTTPS://xn--bcher-kva.example", PUBLIC, "https://xn--bcher-kva.example"),
    ("https://8.8.8.8", PUBLIC, "https://8.8.8.8"),
    ("https://[2606:4700::1111]:8443", PUBLIC, "https://[2606:4700::1111]:8443"),
    ("https://[2606:4700:0:0:0:0:0:1111]", PUBLIC, "https://[2606:4700::1111]"),
    ("https://plugin/x", PUBLIC, "https://plugin/x"),
    ("https://lab_1.internal", PUBLIC, "https://lab_1.internal"),
    ("https://1password.example", PUBLIC, "https://1password.example"),
    ("https://a.example/%7Euser", PUBLIC, "https://a.example/%7Euser"),
    ("https://[64:ff9b::808:808]", PUBLIC, "https://[64:ff9b::808:808]"),
    ("https://[::ffff:8.8.8.8]", PUBLIC, "https://[::ffff:808:808]"),
    ("http://api.example.com:80", HTTP, "http://api.example.com"),
    ("https://10.1.2.3", PRIVATE, "https://10.1.2.3"),
    ("https://172.31.255.255", PRIVATE, "https://172.31.255.255"),
    ("https://192.168.1.1", PRIVATE, "https://192.168.1.1"),
    ("https://100.64.0.1", PRIVATE, "https://100.64.0.1"),
    ("https://[fd12:3456::1]", PRIVATE, "https://[fd12:3456::1]"),
    ("https://[::ffff:10.0.0.1]", PRIVATE, "https://[::ffff:a00:1]"),
    ("https://127.0.0.1:9000", LOOPBACK, "https://127.0.0.1:9000"),
    ("https://localhost", LOOPBACK, "https://localhost"),
    ("https://[::1]", LOOPBACK, "https://[::1]"),
    ("http://127.0.0.1:8080/x", EVERYTHING, "http://127.0.0.1:8080/x"),
]

REFUSED = [
    ("", EVERYTHING),
    ("https://", EVERYTHING),
    ("https:///path", EVERYTHING),
    ("https:api.example.com", EVERYTHING),
    ("api.example.com", EVERYTHING),
    ("//api.example.com", EVERYTHING),
    ("ftp://api.example.com", EVERYTHING),
    ("file:///etc/passwd", EVERYTHING),
    ("gopher://127.0.0.1:70", EVERYTHING),
    ("http+unix://x", EVERYTHING),
    ("javascript:alert(1)", EVERYTHING),
    ("http://api.example.com", PUBLIC),
    ("https://user@api.example.com", EVERYTHING),
    ("https://user:pass@api.example.com", EVERYTHING),
    ("https://api.example.com@169.254.169.254", EVERYTHING),
    ("https://@api.example.com", EVERYTHING),
    ("https://api.example.com%40evil.example", EVERYTHING),
    ("https://api.example.com?x=1", EVERYTHING),
    ("https://api.example.com/?x=1", EVERYTHING),
    ("https://api.example.com#@evil.example", EVERYTHING),
    ("https://api.example.com/#x", EVERYTHING),
    ("https://api.example.com\\@evil.example", EVERYTHING),
    ("https:\\\\api.example.com", EVERYTHING),
    ("https://api.example.com /", EVERYTHING),
    (" https://api.example.com", EVERYTHING),
    ("https://api.example.com\n", EVERYTHING),
    ("https://api.example.com\r\nHost: evil", EVERYTHING),
    ("https://api.exa\tmple.com", EVERYTHING),
    ("https://api.example.com\x00", EVERYTHING),
    ("https://bücher.example", EVERYTHING),
    ("https://①②⑦.⓪.⓪.①", EVERYTHING),
    ("https://127。0。0。1", EVERYTHING),
    ("https://api.example.com:0", EVERYTHING),
    ("https://api.example.com:65536", EVERYTHING),
    ("https://api.example.com:", EVERYTHING),
    ("https://api.example.com:-1", EVERYTHING),
    ("https://api.example.com:80:80", EVERYTHING),
    ("https://api.example.com:8o", EVERYTHING),
    ("https://.example.com", EVERYTHING),
    ("https://a..example.com", EVERYTHING),
    ("https://-a.example.com", EVERYTHING),
    ("https://a-.example.com", EVERYTHING),
    ("https://a.example.com..", EVERYTHING),
    ("https://" + "a" * 64 + ".example", EVERYTHING),
    ("https://" + "a." * 130 + "example", EVERYTHING),
    ("https://a.example/" + "x" * 2_100, EVERYTHING),
    ("https://a.example/../x", EVERYTHING),
    ("https://a.example/x/..", EVERYTHING),
    ("https://a.example/./x", EVERYTHING),
    ("https://a.example/%2e%2e/x", EVERYTHING),
    ("https://a.example/%2E./x", EVERYTHING),
    ("https://a.example//x", EVERYTHING),
    ("https://a.example/a%2fb", EVERYTHING),
    ("https://a.example/a%5Cb", EVERYTHING),
    ("https://a.example/a%00", EVERYTHING),
    ("https://a.example/a%zz", EVERYTHING),
    ("https://a.example/<script>", EVERYTHING),
    ("https://127.0.0.1", PUBLIC),
    ("https://127.0.0.1", PRIVATE),
    ("https://127.255.255.254", PUBLIC),
    ("https://localhost", PUBLIC),
    ("https://LOCALHOST.", PUBLIC),
    ("https://api.localhost", PRIVATE),
    ("https://[::1]", PRIVATE),
    ("https://[0:0:0:0:0:0:0:1]", PUBLIC),
    ("https://[::ffff:127.0.0.1]", PRIVATE),
    ("https://[::ffff:7f00:1]", PRIVATE),
    ("https://10.0.0.1", PUBLIC),
    ("https://172.16.0.1", LOOPBACK),
    ("https://192.168.0.1", PUBLIC),
    ("https://100.64.0.1", PUBLIC),
    ("https://198.18.0.1", PUBLIC),
    ("https://[fc00::1]", PUBLIC),
    ("https://[fd00::1]", LOOPBACK),
    ("https://[fec0::1]", PUBLIC),
    ("https://[64:ff9b::a00:1]", PUBLIC),
    ("https://[64:ff9b::7f00:1]", PRIVATE),
    ("https://[64:ff9b::a9fe:a9fe]", EVERYTHING),
    ("https://[64:ff9b:1::808:808]", EVERYTHING),
    ("https://[::ffff:169.254.169.254]", EVERYTHING),
    ("https://[2002:a9fe:a9fe::1]", EVERYTHING),
    ("https://[2002:7f00:1::]", PRIVATE),
    ("https://[2001:0:a9fe:a9fe::1]", EVERYTHING),
    ("https://[::169.254.169.254]", EVERYTHING),
    ("https://[::7f00:1]", EVERYTHING),
    ("https://[::]", EVERYTHING),
    ("https://[fe80::1]", EVERYTHING),
    ("https://[fe80::1%25eth0]", EVERYTHING),
    ("https://[fe80::1%eth0]", EVERYTHING),
    ("https://[fd00:ec2::254]", EVERYTHING),
    ("https://[fd00:ec2::23]", EVERYTHING),
    ("https://[fd20:ce::254]", EVERYTHING),
    ("https://[ff02::1]", EVERYTHING),
    ("https://[2001:db8::1]", EVERYTHING),
    ("https://[::1", EVERYTHING),
    ("https://::1", EVERYTHING),
    ("https://[1.2.3.4]", EVERYTHING),
    ("https://[:::]", EVERYTHING),
    ("https://169.254.169.254", EVERYTHING),
    ("https://169.254.169.254.", EVERYTHING),
    ("https://169.254.170.2", EVERYTHING),
    ("https://169.254.170.23", EVERYTHING),
    ("https://169.254.100.1", EVERYTHING),
    ("https://100.100.100.200", EVERYTHING),
    ("https://168.63.129.16", EVERYTHING),
    ("https://192.0.0.192", EVERYTHING),
    ("https://metadata.google.internal", EVERYTHING),
    ("https://METADATA.google.internal.", EVERYTHING),
    ("https://metadata", EVERYTHING),
    ("https://instance-data", EVERYTHING),
    ("https://0.0.0.0", EVERYTHING),
    ("https://0", EVERYTHING),
    ("https://2130706433", EVERYTHING),
    ("https://2852039166", EVERYTHING),
    ("https://0x7f000001", EVERYTHING),
    ("https://0x7f.0.0.1", EVERYTHING),
    ("https://127.0.0.0x1", EVERYTHING),
    ("https://0xa9fea9fe", EVERYTHING),
    ("https://0177.0.0.1", EVERYTHING),
    ("https://017700000001", EVERYTHING),
    ("https://127.0.0.01", EVERYTHING),
    ("https://127.1", EVERYTHING),
    ("https://127.0.1", EVERYTHING),
    ("https://10.1", EVERYTHING),
    ("https://256.1.1.1", EVERYTHING),
    ("https://1.2.3.4.5", EVERYTHING),
    ("https://x.0x", EVERYTHING),
    ("https://224.0.0.1", EVERYTHING),
    ("https://240.0.0.1", EVERYTHING),
    ("https://255.255.255.255", EVERYTHING),
    ("https://192.0.2.1", EVERYTHING),
]


@pytest.mark.parametrize(("text", "rules", "url"), ACCEPTED)
def test_an_endpoint_is_taken_in_its_one_usual_form(text: str, rules: EndpointRules, url: str) -> None:
    endpoint = parse_endpoint(text, rules)
    assert endpoint.url == url
    assert parse_endpoint(endpoint.url, rules) == endpoint


@pytest.mark.parametrize(("text", "rules"), REFUSED)
def test_an_endpoint_is_refused_without_repeating_it(text: str, rules: EndpointRules) -> None:
    with pytest.raises(InvalidRequest) as refused:
        parse_endpoint(text, rules)
    assert refused.value.details == {"field": "config.endpoint"}
    if len(text) > 20:
        assert text not in refused.value.message
        assert "pass" not in refused.value.message.replace("password", "")


def test_the_table_is_as_long_as_it_should_be() -> None:
    assert len(ACCEPTED) + len(REFUSED) >= 140


@pytest.mark.parametrize(
    ("address", "place"),
    [
        ("93.184.216.34", Place.PUBLIC),
        ("10.255.255.255", Place.PRIVATE),
        ("172.15.255.255", Place.PUBLIC),
        ("172.32.0.0", Place.PUBLIC),
        ("100.127.255.255", Place.PRIVATE),
        ("100.128.0.0", Place.PUBLIC),
        ("126.255.255.255", Place.PUBLIC),
        ("169.254.0.0", Place.LINK_LOCAL),
        ("168.63.129.16", Place.METADATA),
        ("::ffff:100.100.100.200", Place.METADATA),
        ("2002:a00:1::", Place.PRIVATE),
        ("2600::1", Place.PUBLIC),
        ("4000::1", Place.RESERVED),
        ("100::1", Place.RESERVED),
    ],
)
def test_an_address_lies_where_it_leads(address: str, place: Place) -> None:
    assert place_of(ip_address(address)) is place


def test_no_opt_in_opens_link_local_metadata_or_reserved() -> None:
    for place in (Place.LINK_LOCAL, Place.METADATA, Place.RESERVED):
        assert not permitted(place, EVERYTHING)


def test_one_wrong_address_among_good_ones_refuses_the_host() -> None:
    assert check_addresses(["93.184.216.34", "2600::1"], PUBLIC) == ["93.184.216.34", "2600::1"]
    for wrong in ("169.254.169.254", "fe80::1%eth0", "10.0.0.1", "::ffff:10.0.0.1"):
        with pytest.raises(AddressRefused):
            check_addresses(["93.184.216.34", wrong], PUBLIC)


NEEDED = {
    "blaxel": {"workspace": "w", "region": "r"},
    "daytona": {},
    "fly": {"app": "a"},
    "morph": {"snapshot": "snapshot_1"},
    "opensandbox": {"runtime": "docker"},
    "vercel": {"projectId": "p", "teamId": "t"},
}


@pytest.mark.parametrize(
    ("kind", "field", "value"),
    [
        ("blaxel", "apiUrl", "http://api.example"),
        ("daytona", "apiUrl", "http://api.example"),
        ("e2b", "apiUrl", "http://api.example"),
        ("e2b", "sandboxUrl", "http://api.example"),
        ("e2b", "domain", "169.254.169.254"),
        ("fly", "apiUrl", "http://api.example"),
        ("freestyle", "apiUrl", "http://api.example"),
        ("morph", "apiUrl", "http://api.example"),
        ("opensandbox", "apiUrl", "http://api.example"),
        ("vercel", "apiUrl", "http://api.example"),
    ],
)
def test_a_refused_endpoint_is_told_by_the_field_that_the_pool_has(kind: str, field: str, value: str) -> None:
    """An operator was told of `config.endpoint`, which E2B's configuration does not have."""
    with pytest.raises(InvalidRequest) as refused:
        parse_config(kind, {**NEEDED.get(kind, {}), field: value})
    assert refused.value.details["field"] == f"config.{field}"
