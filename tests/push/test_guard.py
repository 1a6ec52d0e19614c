"""Which URLs a webhook may have, before DNS is asked."""

from __future__ import annotations

from ipaddress import IPv6Network, ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tieline.engine.addresses import Kind, kind_of
from tieline.engine.guard import Guard, Target, target_of

PUBLIC = ("https://example.com", "https://example.com/hook?x=1", "https://a-b.example.com:8443/", "https://8.8.8.8/x")

NOT_PUBLIC = {
    Kind.LOOPBACK: ("127.0.0.1", "127.255.255.254", "[::1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "localhost"),
    Kind.PRIVATE: (
        "10.0.0.1",
        "172.16.0.1",
        "172.31.255.255",
        "192.168.1.1",
        "100.64.0.1",
        "100.127.255.255",
        "[fc00::1]",
        "[fd12:3456::1]",
        "[::ffff:10.0.0.1]",
    ),
    Kind.LINK_LOCAL: ("169.254.169.254", "169.254.0.1", "[fe80::1]", "[::ffff:169.254.169.254]"),
    Kind.MULTICAST: ("224.0.0.1", "239.255.255.250", "[ff02::1]"),
    Kind.UNSPECIFIED: ("0.0.0.0", "[::]", "[::ffff:0.0.0.0]"),
    Kind.RESERVED: (
        "0.1.2.3",
        "192.0.0.1",
        "192.0.2.1",
        "192.88.99.1",
        "198.18.0.1",
        "203.0.113.5",
        "240.0.0.1",
        "255.255.255.255",
        "[2001:db8::1]",
        "[2001::1]",
        "[64:ff9b::a9fe:a9fe]",
        "[64:ff9b::10.0.0.1]",
        "[64:ff9b:1::1]",
        "[2002:7f00:1::]",
        "[2002:a9fe:a9fe::1]",
        "[::127.0.0.1]",
        "[fec0::1]",
        "[100::1]",
        "[5f00::1]",
    ),
}
EVERY_KIND = [(kind, host) for kind, hosts in NOT_PUBLIC.items() for host in hosts]

MALFORMED = (
    ("", "an https URL"),
    ("example.com/hook", "an https URL"),
    ("ftp://example.com/", "an https URL"),
    ("file:///etc/passwd", "an https URL"),
    ("https:///hook", "a URL with a host"),
    ("https://", "a URL with a host"),
    ("https://user:secret@example.com/", "without a user name"),
    ("https://@example.com/", "without a user name"),
    ("https://example.com@127.0.0.1/", "without a user name"),
    ("https://example.com:0/", "a port from 1"),
    ("https://example.com:65536/", "a port from 1"),
    ("https://example.com:/", "a port from 1"),
    ("https://example.com:x/", "a port from 1"),
    ("https://example.com/\r\nX-Injected: 1", "control characters"),
    ("https://example.com/\0", "control characters"),
    ("https://exam\tple.com/", "control characters"),
    ("https://example.com/a b", "without spaces"),
    ("https://example.com\\@127.0.0.1/", "backslashes"),
    ("https://example.com./", "without a dot at the end"),
    ("https://127.0.0.1./", "without a dot at the end"),
    ("https://localhost./", "without a dot at the end"),
    ("https://2130706433/", "four decimal numbers"),
    ("https://0x7f000001/", "four decimal numbers"),
    ("https://0x7f.1/", "four decimal numbers"),
    ("https://017700000001/", "four decimal numbers"),
    ("https://0177.0.0.1/", "four decimal numbers"),
    ("https://127.1/", "four decimal numbers"),
    ("https://127.0.0.256/", "four decimal numbers"),
    ("https://1.2.3.4.5/", "four decimal numbers"),
    ("https://example.0x/", "four decimal numbers"),
    ("https://\uff11\uff12\uff17.\uff10.\uff10.\uff11/", "a host in ASCII"),
    ("https://127\u30020\u30020\u30021/", "a host in ASCII"),
    ("https://\u24db\u24de\u24d2\u24d0\u24db\u24d7\u24de\u24e2\u24e3/", "a host in ASCII"),
    ("https://b\u00fccher.example/", "a host in ASCII"),
    ("https://127.0.0.%31/", "letters, digits"),
    ("https://%6cocalhost/", "letters, digits"),
    ("https://a..example/", "letters, digits"),
    ("https://-a.example/", "letters, digits"),
    ("https://[::1%25eth0]/", "without a zone"),
    ("https://[fe80::1%eth0]/", "without a zone"),
    ("https://[::1/", "a URL with a host"),
    ("https://[127.0.0.1]/", "has to"),
    ("https://" + "a" * 5000, "at most 4096"),
)


@pytest.mark.parametrize("url", PUBLIC)
def test_https_to_a_name_or_a_public_address_is_allowed(url: str) -> None:
    assert Guard().check(url).scheme == "https"


@pytest.mark.parametrize(("kind", "host"), EVERY_KIND)
def test_address_that_is_not_public_is_refused_and_the_sentence_says_what_it_is(kind: Kind, host: str) -> None:
    with pytest.raises(ValueError, match=f"has a host at an? {kind.value} address, which is not allowed here"):
        Guard().check(f"https://{host}/hook")


@pytest.mark.parametrize(("kind", "host"), EVERY_KIND)
@pytest.mark.parametrize("opened", [Kind.PRIVATE, Kind.LOOPBACK])
def test_a_permission_opens_the_addresses_of_its_kind_and_no_others(kind: Kind, host: str, opened: Kind) -> None:
    guard = Guard(allow_private=opened is Kind.PRIVATE, allow_loopback=opened is Kind.LOOPBACK)
    for scheme in ("http", "https"):
        if kind is opened:
            guard.check(f"{scheme}://{host}/hook")
        else:
            with pytest.raises(ValueError, match="not allowed here"):
                guard.check(f"{scheme}://{host}/hook")


@pytest.mark.parametrize(("url", "words"), MALFORMED)
@pytest.mark.parametrize("guard", [Guard(), Guard(allow_private=True, allow_loopback=True)])
def test_url_that_readers_could_take_differently_is_refused(url: str, words: str, guard: Guard) -> None:
    with pytest.raises(ValueError, match=words):
        guard.check(url)


@pytest.mark.parametrize("name", ["localhost", "LOCALHOST", "api.localhost", "ip6-loopback", "localhost.localdomain"])
def test_names_of_this_machine_are_loopback_without_asking_dns(name: str) -> None:
    with pytest.raises(ValueError, match="loopback"):
        Guard().check(f"https://{name}/")
    Guard(allow_loopback=True).check(f"http://{name}:8000/")


@pytest.mark.requirement("push-security.https")
def test_plain_http_is_refused_by_default_and_to_public_addresses_always() -> None:
    with pytest.raises(ValueError, match="has to be an https URL"):
        Guard().check("http://example.com/")
    opened = Guard(allow_private=True, allow_loopback=True)
    with pytest.raises(ValueError, match="has to be an https URL: its host is at a public address"):
        opened.check("http://8.8.8.8/")
    named = opened.check("http://example.com/")
    assert opened.refusal(named, [ip_address("8.8.8.8")]) is not None
    assert opened.refusal(named, [ip_address("10.0.0.1")]) is None


def test_one_address_that_is_refused_refuses_the_name() -> None:
    target = target_of("https://example.com/")
    public, private = ip_address("8.8.8.8"), ip_address("10.0.0.1")
    assert Guard().refusal(target, [public]) is None
    assert Guard().refusal(target, [public, private]) == "has a host at a private address, which is not allowed here"
    assert Guard().refusal(target, [private, public]) is not None
    assert Guard().refusal(target, []) == "has a host without an address"


@pytest.mark.parametrize(
    ("entry", "yes", "no"),
    [
        (
            "example.com",
            ["https://example.com/", "https://EXAMPLE.com:8443/"],
            ["https://a.example.com/", "https://xexample.com/"],
        ),
        (
            "*.example.com",
            ["https://a.example.com/", "https://a.b.example.com/"],
            ["https://example.com/", "https://aexample.com/"],
        ),
        ("example.com:8443", ["https://example.com:8443/"], ["https://example.com/", "https://example.com:443/"]),
        ("Example.COM:443", ["https://example.com/"], ["https://example.com:444/"]),
        ("8.8.8.8", ["https://8.8.8.8/"], ["https://8.8.4.4/"]),
        ("[2606:4700::1111]:443", ["https://[2606:4700:0::1111]/"], ["https://[2606:4700::1111]:444/"]),
        ("2606:4700::1111", ["https://[2606:4700::1111]:444/"], ["https://[2606:4700::1112]/"]),
    ],
)
def test_list_of_hosts_allows_these_and_nothing_else(entry: str, yes: list[str], no: list[str]) -> None:
    guard = Guard(allowed=("other.example", entry))
    for url in yes:
        guard.check(url)
    for url in no:
        with pytest.raises(ValueError, match="not among those allowed here"):
            guard.check(url)


def test_list_of_hosts_opens_no_private_address() -> None:
    with pytest.raises(ValueError, match="a private address"):
        Guard(allowed=("10.0.0.1",)).check("https://10.0.0.1/")
    Guard(allow_private=True, allowed=("10.0.0.1",)).check("https://10.0.0.1/")


@pytest.mark.parametrize(
    "entry",
    ["", "https://example.com", "example.com/x", "*", "*.", "*.10.0.0.1", "user@example.com", "a:0", "a:x", "a b"],
)
def test_entry_that_is_no_host_is_refused_when_the_guard_is_made(entry: str) -> None:
    with pytest.raises(ValueError, match=r"hosts are allowed as example\.com"):
        Guard(allowed=(entry,))


def test_target_holds_what_is_called() -> None:
    assert target_of("HTTPS://Example.com/a%20b/\u00fc?q=\u00e9&r=%41#fragment") == Target(
        "https", "example.com", 443, "/a%20b/%C3%BC?q=%C3%A9&r=%41", None
    )
    assert target_of("https://[2606:4700:0:0::1111]:8443").origin == "https://[2606:4700::1111]:8443"
    assert target_of("https://example.com:443").origin == "https://example.com"


@given(st.ip_addresses(v=4))
def test_ipv4_is_of_the_same_kind_when_it_is_mapped(address: object) -> None:
    assert kind_of(ip_address(f"::ffff:{address}")) is kind_of(ip_address(str(address)))


@given(st.ip_addresses())
def test_no_address_is_public_that_the_registry_says_is_not_global(address: object) -> None:
    read = ip_address(str(address))
    if kind_of(read) is Kind.PUBLIC and getattr(read, "sixtofour", None) is None:
        assert read.is_global or read in IPv6Network("64:ff9b::/96")


@given(st.text(max_size=40))
def test_any_text_is_refused_with_a_sentence_or_read(text: str) -> None:
    for url in (text, f"https://{text}", f"https://{text}.example/", f"https://example.com/{text}"):
        try:
            target = Guard().check(url)
        except ValueError as error:
            refused = str(error)
            assert refused.startswith(("has to be", "has to have", "has a host"))
        else:
            assert target.host.isascii()
            assert target.path.isascii()
