"""Keys: what a site or a person may touch carries its name, and nothing of anybody else's does."""

import re
from itertools import combinations

import pytest

from tenure.broker.base import ClientAddress, LogKey, Stream, WorkerAddress
from tenure.broker.keys import ContentKeys, Keys
from tenure.broker.principals import Principal, person_of, site_of

NAMES = ("lab", "lab2", "la", "default", "cap", "l-b", "l_b")
TASK = "0" * 26


def of_site(site: str, namespace: str = "main") -> dict[str, str]:
    """Every kind of key of a site, for a worker and a capability that are called the same everywhere."""
    keys, contents, worker = Keys(namespace), ContentKeys(namespace), WorkerAddress(site, "w1")
    return {
        "cap": keys.assignments(Stream(site, "cpu")),
        "own": keys.assignments(Stream(site, worker_id="w1")),
        "ctl": keys.control(worker),
        "hb": keys.heartbeat(worker),
        "echo": keys.echo(worker),
        "log": contents.log(LogKey(site, TASK, 1)),
        "stg": contents.staged(f"{site}:{TASK}:1:{'a' * 16}", "b" * 64),
        "inbox": keys.inbox(site),
    }


def of_person(person: str) -> dict[str, str]:
    keys = Keys("main")
    return {"rpc": keys.rpc(person), "reply": keys.reply(ClientAddress(person, "c1"))}


@pytest.mark.parametrize("name", NAMES)
def test_every_key_names_its_kind_and_whose_it_is(name: str) -> None:
    for kind, key in (of_site(name) | of_person(name)).items():
        assert re.match(rf"tenure:\{{main\}}:{kind}:{name}(:|$)", key), key


def test_no_key_of_one_is_a_key_of_another() -> None:
    for one, other in combinations(NAMES, 2):
        assert set(of_site(one).values()).isdisjoint(of_site(other).values())
        assert set(of_person(one).values()).isdisjoint(of_person(other).values())
        assert set(of_site(one).values()).isdisjoint(of_person(other).values())
    assert set(of_site("lab").values()).isdisjoint(of_site("lab", "mainly").values())


def test_a_worker_and_a_capability_of_one_name_have_streams_of_their_own() -> None:
    keys = Keys("main")
    assert keys.assignments(Stream("lab", "w1")) != keys.assignments(Stream("lab", worker_id="w1"))


def test_nothing_of_a_site_is_forgotten_but_what_ends_by_itself() -> None:
    left = {key for kind, key in of_site("lab").items() if kind not in {"log", "stg"}}
    assert set(Keys("main").of_site("lab", ["w1"], ["cpu"])) == left
    assert Keys("main").of_site("lab", [], []) == [Keys("main").inbox("lab")]


@pytest.mark.parametrize("name", NAMES)
def test_a_user_s_name_says_whose_it_is_in_its_own_namespace_only(name: str) -> None:
    site, person = Principal("main", "site", name), Principal("main", "client", name)
    assert (site_of(site.user, "main"), person_of(person.user, "main")) == (name, name)
    assert (site_of(site.user, "mainly"), person_of(person.user, "mai")) == ("default", "default")
    assert (site_of(person.user, "main"), person_of(site.user, "main")) == ("default", "default")


@pytest.mark.parametrize("user", ["", "default", "admin", Principal("main", "coordinator").user, "tenure.main.site."])
def test_every_other_user_is_of_no_site_and_nobody_in_particular(user: str) -> None:
    assert (site_of(user, "main"), person_of(user, "main")) == ("default", "default")
