"""Clients as the coordinator remembers them: one word that says whose client it is and which one.

A watcher that is on record outlives the client's request, so the word holds all that is needed to write to it. Neither
part can hold a colon. Of a fleet without credentials the word is the client's id alone, as it always was.
"""

from __future__ import annotations

from tenure.broker.base import ClientAddress
from tenure.broker.keys import DEFAULT_PERSON


def word_for(person: str, client_id: str) -> str:
    """The word for a client of that person."""
    return client_id if person == DEFAULT_PERSON else f"{person}:{client_id}"


def address_of(word: str) -> ClientAddress:
    """Where the client of that word is written to."""
    person, colon, client_id = word.rpartition(":")
    return ClientAddress(person if colon else DEFAULT_PERSON, client_id)
