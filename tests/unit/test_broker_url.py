"""What a broker's URL may look like, and that its password stays in it."""

from pathlib import Path

import pytest

from tenure.broker.url import BrokerUrl
from tenure.errors import InvalidSettings


@pytest.mark.parametrize(
    ("url", "address", "parts"),
    [
        ("redis://", "localhost:6379", {"host": "localhost", "port": 6379, "db": 0}),
        (
            "valkey://u:p%40ss@h:1/3",
            "h:1",
            {"host": "h", "port": 1, "db": 3, "username": "u", "password": "p@ss"},
        ),
        ("redis://:p@[::1]:7", "::1:7", {"host": "::1", "port": 7, "db": 0, "password": "p"}),
        ("unix://:p@/run/my%20broker.sock?db=2", "/run/my broker.sock", {"path": "/run/my broker.sock", "db": 2}),
        (
            "rediss://h?ssl_ca_certs=/ca.pem&ssl_check_hostname=false",
            "h:6379",
            {"host": "h", "ssl_ca_certs": "/ca.pem", "ssl_check_hostname": False},
        ),
    ],
)
def test_urls_are_taken_apart(url: str, address: str, parts: dict[str, object]) -> None:
    found = BrokerUrl(url)

    assert found.address == address
    assert found.parts() == found.parts() | parts


@pytest.mark.parametrize(
    "url",
    [
        "",
        "h:6379",
        "http://u:s3cret@h",
        "redis://u:s3cret@h:port",
        "redis://u:s3cret@h:99999",
        "redis://u:s3cret@h:0",
        "redis://u:s3cret@[h",
        "redis://u:s3cret@h/name",
        "redis://u:s3cret@h?db=-1",
        "redis://u:s3cret@h?socket_timeout=1",
        "redis://u:s3cret@h?password=s3cret",
        "unix://u:s3cret@/",
    ],
)
def test_other_urls_are_refused_without_being_repeated(url: str) -> None:
    with pytest.raises(InvalidSettings) as caught:
        BrokerUrl(url)

    assert "s3cret" not in str(caught.value)


def test_only_the_address_is_shown() -> None:
    url = BrokerUrl("redis://user:s3cret@h:1/0")

    assert f"{url} {url!r}" == "BrokerUrl(h:1) BrokerUrl(h:1)"


def test_tls_is_asked_for_by_the_scheme() -> None:
    assert [BrokerUrl(f"{scheme}://h").encrypted for scheme in ("redis", "rediss", "valkey", "valkeys")] == [
        False,
        True,
        False,
        True,
    ]


@pytest.mark.parametrize(
    ("own", "theirs"),
    [
        ("redis://h:7/1", "redis://tenure.main.site.lab:s@h:7/1"),
        ("redis://admin:old@h:7", "redis://tenure.main.site.lab:s@h:7"),
        ("redis://:old@[::1]:7", "redis://tenure.main.site.lab:s@[::1]:7"),
        ("unix://:p@/run/my%20broker.sock?db=2", "unix://tenure.main.site.lab:s@/run/my%20broker.sock?db=2"),
        (
            "rediss://h?ssl_ca_certs=/ca.pem&ssl_certfile=/own.pem&ssl_keyfile=/own.key",
            "rediss://tenure.main.site.lab:s@h?ssl_ca_certs=/ca.pem",
        ),
    ],
)
def test_a_user_is_told_the_same_broker_and_nothing_of_whoever_made_it(own: str, theirs: str) -> None:
    told = BrokerUrl(own).for_user("tenure.main.site.lab", "s")

    assert told == theirs
    assert BrokerUrl(told).address == BrokerUrl(own).address


def test_a_url_from_a_file_is_what_the_file_says_last(tmp_path: Path) -> None:
    file = tmp_path / "broker.url"
    file.write_text("redis://u:old@h:1/0\n")
    url = BrokerUrl("redis://u:old@h:1/0", file)
    assert url.latest() == url

    file.write_text("redis://u:new@h:2/0\n# and a remark\n")

    assert url.latest().url == "redis://u:new@h:2/0"
    assert url.latest().latest().source == file


@pytest.mark.parametrize("text", [None, b"", b"http://h", b"\xff\xfe"])
def test_a_file_that_cannot_be_used_changes_nothing(tmp_path: Path, text: bytes | None) -> None:
    file = tmp_path / "broker.url"
    if text is not None:
        file.write_bytes(text)
    url = BrokerUrl("redis://u:old@h:1/0", file)

    assert url.latest() is url


def test_a_url_that_was_given_stays(tmp_path: Path) -> None:
    url = BrokerUrl("redis://tenure.main.site.lab:s%2F@h:1/0")

    assert url.latest() is url
    assert (url.user, BrokerUrl("redis://h").user) == ("tenure.main.site.lab", "")


@pytest.mark.parametrize(
    ("url", "bare"),
    [
        ("redis://u:p@h:7/1?ssl_ca_certs=/ca", "redis://h:7/1?ssl_ca_certs=/ca"),
        ("unix://:p@/run/b.sock", "unix:///run/b.sock"),
        ("rediss://h", "rediss://h"),
    ],
)
def test_anybody_comes_without_name_and_secret(url: str, bare: str) -> None:
    assert BrokerUrl(url).for_anybody() == bare
