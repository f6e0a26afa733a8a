"""What each of the server's and the driver's errors becomes."""

import ssl
from collections.abc import Callable

import pytest
import redis.exceptions
from redis._parsers import BaseParser

from tenure.broker.redis_errors import first_word, translate, translated
from tenure.errors import BrokerError, BrokerFull, BrokerRefused, BrokerUnreachable, CredentialRefused, StreamMissing


def parsed(line: str) -> redis.exceptions.RedisError:
    """What the driver makes of an error line."""
    parse: Callable[[str], redis.exceptions.RedisError] = vars(BaseParser)["parse_error"].__get__(None, BaseParser)
    return parse(line)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("NOGROUP No such key 'x' or consumer group 'tenure' in XREADGROUP with GROUP option", StreamMissing),
        ("UNBLOCKED the stream key no longer exists", StreamMissing),
        ("NOPERM User few has no permissions to run the 'xack' command", BrokerRefused),
        ("NOAUTH Authentication required.", CredentialRefused),
        ("WRONGPASS invalid username-password pair or user is disabled.", CredentialRefused),
        ("WRONGTYPE Operation against a key holding the wrong kind of value", BrokerRefused),
        ("READONLY You can't write against a read only replica.", BrokerRefused),
        ("MOVED 3999 127.0.0.1:6381", BrokerRefused),
        ("OOM command not allowed when used memory > 'maxmemory'.", BrokerFull),
        ("MISCONF Errors writing to the AOF file: No space left on device", BrokerFull),
        ("LOADING Redis is loading the dataset in memory", BrokerUnreachable),
        ("CLUSTERDOWN The cluster is down", BrokerUnreachable),
        ("MASTERDOWN Link with MASTER is down", BrokerUnreachable),
        ("TRYAGAIN Multiple keys request during rehashing of slot", BrokerUnreachable),
        ("ERR max number of clients reached", BrokerUnreachable),
        ("ERR unknown command 'XADD'", BrokerRefused),
    ],
)
def test_the_servers_errors(line: str, expected: type[BrokerError]) -> None:
    found = translate(parsed(line), "h:1")

    assert type(found) is expected
    assert "h:1" in found.message
    assert found.remedy


def test_the_cause_is_kept() -> None:
    cause = redis.exceptions.TimeoutError("Timeout reading from h:1")

    with pytest.raises(BrokerUnreachable, match="did not answer in time") as caught, translated("h:1"):
        raise cause
    assert caught.value.__cause__ is cause


def test_a_sentence_ends_once() -> None:
    closed = translate(redis.exceptions.ConnectionError("Connection closed by server."), "h:1")

    assert str(closed).startswith("The broker at h:1 cannot be reached: Connection closed by server. Check")


def test_other_errors_pass_untouched() -> None:
    with pytest.raises(ZeroDivisionError), translated("h:1"):
        raise ZeroDivisionError


def test_a_certificate_that_does_not_hold_is_told_apart_from_a_network_that_is_down() -> None:
    error = redis.exceptions.ConnectionError("Error connecting")
    error.__context__ = ssl.SSLCertVerificationError("certificate verify failed")

    found = translate(error, "h:1")

    assert isinstance(found, BrokerRefused)
    assert "ssl_ca_certs" in found.remedy


@pytest.mark.parametrize("code", ["NOGROUP", "OOM", "NOPERM", "BUSYGROUP", "READONLY", "EXECABORT"])
def test_the_first_word_is_found_also_where_the_driver_hides_it(code: str) -> None:
    assert first_word(parsed(f"{code} and so on")) == code


def test_a_connection_that_ends_through_tls_is_one_that_ends() -> None:
    error = redis.exceptions.ConnectionError("Error while reading from socket")
    error.__context__ = ssl.SSLEOFError(8, "EOF occurred in violation of protocol")

    assert isinstance(translate(error, "h:1"), BrokerUnreachable)
