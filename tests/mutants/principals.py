"""Mutants of who takes part, who may ask for what, and for whom somebody is taken."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import mutant

_ADDRESSES: Final = "coordinator/addresses.py"
_PRINCIPALS: Final = "coordinator/principals.py"
_REQUESTS: Final = "coordinator/requests.py"
_RIGHTS: Final = "coordinator/rights.py"

MUTANTS: Final = (
    mutant(
        "principal_as_claimed",
        "who asks is the person of the stream, whatever the request says",
        _RIGHTS,
        "return request.principal if person == DEFAULT_PERSON else person",
        "return request.principal",
    ),
    mutant(
        "observers_submit",
        "an observer reads and does nothing",
        _RIGHTS,
        "(role is Role.SUBMITTER and isinstance(ask, _STEPS_OF_SUBMITTERS))",
        "isinstance(ask, _STEPS_OF_SUBMITTERS)",
    ),
    mutant(
        "everybody_is_an_operator",
        "only operators decide, issue and revoke",
        _RIGHTS,
        "    if not allowed:\n",
        "    if role is None:\n",
    ),
    mutant(
        "digests_for_all",
        "only operators read digests of secrets",
        _RIGHTS,
        "if isinstance(ask, Query) and ask.what in _FOR_OPERATORS:",
        "if isinstance(ask, Query) and ask.what in ():",
    ),
    mutant(
        "revoked_person_asks",
        "a person who was revoked has no role any more",
        _RIGHTS,
        'if row is not None and row[1] == "ACTIVE" else None',
        "if row is not None else None",
    ),
    mutant(
        "cancels_for_others",
        "a submitter cancels what is its own",
        _RIGHTS,
        "if foreign and role_of(turn, person) is not Role.OPERATOR:",
        "if foreign and role_of(turn, person) is None:",
    ),
    mutant(
        "answers_of_others",
        "an answer goes to the person who has asked",
        _ADDRESSES,
        'return client_id if person == DEFAULT_PERSON else f"{person}:{client_id}"',
        "return client_id",
    ),
    mutant(
        "refused_after_the_step",
        "a request is refused before it has changed anything",
        _REQUESTS,
        "        rights.require(turn, person, request.ask)\n",
        "",
    ),
    mutant(
        "name_issued_twice",
        "the name of a site is issued once",
        _PRINCIPALS,
        '    if known is not None:\n        raise _taken("site", ask.site, str(known[0]))\n',
        "    if known is not None:\n        return\n",
    ),
    mutant(
        "squatted_site",
        "no site is issued whose workers' ids somebody else has",
        _PRINCIPALS,
        "    if foreign is not None:\n",
        "    if foreign is ask:\n",
    ),
    mutant(
        "rotation_keeps_the_old",
        "the end of a rotation leaves the newest secret and no other",
        _PRINCIPALS,
        "(ask.holder, ask.name))[:-1]\n",
        "(ask.holder, ask.name))[:-2]\n",
    ),
    mutant(
        "revoked_with_secrets",
        "with a revocation every secret of the holder ends",
        _PRINCIPALS,
        '    for digest, _ in turn.store.rows("live_credentials", (ask.holder, ask.name)):\n',
        "    for digest, _ in ():\n",
    ),
    mutant(
        "default_revoked",
        "what belongs to no credential cannot be revoked",
        _PRINCIPALS,
        "    if ask.name in {DEFAULT_SITE, DEFAULT_PERSON}:\n",
        "    if not ask.name:\n",
    ),
    mutant(
        "role_changed_by_name",
        "a person's role changes on record",
        _PRINCIPALS,
        '    turn.store.run("change_role", (ask.role, ask.person))\n',
        "",
    ),
    mutant(
        "revoked_holder_rotates",
        "a holder that was revoked gets no other secret",
        _PRINCIPALS,
        '    if state != "ACTIVE" or name in {DEFAULT_SITE, DEFAULT_PERSON}:\n',
        "    if name in {DEFAULT_SITE, DEFAULT_PERSON}:\n",
    ),
)
