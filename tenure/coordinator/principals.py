"""Sites and people come and go: issued once, rotated as often as one likes, revoked for good.

What is decided here is on record before the broker learns of it, and a revocation counts from its commit: nothing that
the holder says is taken any more, whether or not the broker still lets it in. A name is never used again, so that what
is on record about it stays true.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from tenure.broker.keys import DEFAULT_PERSON, DEFAULT_SITE
from tenure.coordinator import sites
from tenure.coordinator.journal import Step
from tenure.errors import NameTaken, UnknownPrincipal, UsageError
from tenure.protocol.principal_messages import (
    AddCredential,
    ChangeRole,
    GrantSite,
    IssuePerson,
    IssueSite,
    RetireCredentials,
    Revoke,
)

if TYPE_CHECKING:
    from tenure.coordinator.turn import Turn
    from tenure.protocol.principal_messages import Holder

Ask = IssueSite | IssuePerson | GrantSite | ChangeRole | AddCredential | RetireCredentials | Revoke
Rows = list[dict[str, Any]]

_SHOWN: Final = 12
_MOST_CREDENTIALS: Final = 4
"""How many secrets of one holder may be good at once: enough for a rotation that was begun again after a crash."""


def take(turn: Turn, ask: Ask, by: str) -> Rows:
    """Do what an operator asks; answers what the broker's user is to be, in one row.

    Raises:
        NameTaken: the name is or was in use.
        UnknownPrincipal: there is no such holder, or it was revoked.
        UsageError: a rotation does not fit what is on record.
    """
    by = by or "somebody"
    match ask:
        case IssueSite():
            _issue_site(turn, ask, by)
            return _row(turn, "site", ask.site)
        case IssuePerson():
            _issue_person(turn, ask, by)
            return _row(turn, "person", ask.person)
        case GrantSite():
            _grant_site(turn, ask, by)
            return _row(turn, "site", ask.site)
        case ChangeRole():
            _change_role(turn, ask, by)
            return _row(turn, "person", ask.person)
        case AddCredential():
            _add_credential(turn, ask, by)
        case RetireCredentials():
            _retire_old(turn, ask, by)
        case Revoke():
            return _revoke(turn, ask, by)
    return _row(turn, ask.holder, ask.name)


def _issue_site(turn: Turn, ask: IssueSite, by: str) -> None:
    known = turn.store.row("site_on_record", (ask.site,))
    if known is not None and ask.site != DEFAULT_SITE and _has(turn, "site", ask.site, ask.secret_digest):
        return  # asked again because the answer was lost
    if known is not None:
        raise _taken("site", ask.site, str(known[0]))
    foreign = next((each for each in turn.fleet if each.worker_id.startswith(f"{ask.site}.")), None)
    if foreign is not None:
        raise NameTaken(
            f"{foreign.worker_id}, a worker of site {foreign.site}, is called as only workers of {ask.site} may be",
            "Choose another name",
        )
    capabilities, devices = sorted(set(ask.capabilities)), sorted(set(ask.devices))
    granted = (json.dumps(capabilities), json.dumps(devices), ask.most_leases)
    turn.store.run("issue_site", (ask.site, ask.site_kind, turn.now_ms, *granted, by))
    turn.store.run("add_credential", ("site", ask.site, ask.secret_digest, turn.now_ms))
    text = f"{by} issued site {ask.site} ({ask.site_kind}) for {_terms(capabilities, devices, ask.most_leases)}."
    turn.record("site_issued", text, step=Step(after="ACTIVE", site=ask.site))
    sites.reload(turn)


def _grant_site(turn: Turn, ask: GrantSite, by: str) -> None:
    """The same once more changes nothing, and is not recorded again."""
    _require_active(turn, "site", ask.site)
    _, _, capabilities, most_leases, devices = turn.store.rows("site_on_record", (ask.site,))[0]
    before = (json.loads(capabilities), json.loads(devices), most_leases)
    wanted = most_leases if ask.most_leases is None else ask.most_leases
    after = (sorted(set(ask.capabilities)), sorted(set(ask.devices)), wanted)
    if before == after:
        return
    turn.store.run("grant_site", (json.dumps(after[0]), json.dumps(after[1]), wanted, ask.site))
    text = f"{by} granted site {ask.site} {_terms(*after)}; before, it was {_terms(*before)}."
    turn.record("site_granted", text, step=Step(site=ask.site))
    sites.regrant(turn, ask.site)


def _change_role(turn: Turn, ask: ChangeRole, by: str) -> None:
    _require_active(turn, "person", ask.person)
    role = turn.store.rows("person_on_record", (ask.person,))[0][0]
    if role == ask.role:
        return
    turn.store.run("change_role", (ask.role, ask.person))
    turn.record("role_changed", f"{by} made {ask.person}, who was {role}, {ask.role}.", step=Step(role, ask.role))


def _terms(capabilities: list[str], devices: list[str], most_leases: int) -> str:
    """What is granted, for the record."""
    terms = [", ".join(capabilities)]
    if devices:
        terms.append(f"the devices {', '.join(devices)}")
    if most_leases:
        terms.append(f"at most {most_leases} leases")
    return " and ".join(terms)


def _issue_person(turn: Turn, ask: IssuePerson, by: str) -> None:
    known = turn.store.row("person_on_record", (ask.person,))
    if known is not None and _has(turn, "person", ask.person, ask.secret_digest):
        return
    if known is not None or ask.person == DEFAULT_PERSON:
        raise _taken("person", ask.person, str(known[1]) if known is not None else "ACTIVE")
    turn.store.run("issue_person", (ask.person, ask.role, turn.now_ms, by))
    turn.store.run("add_credential", ("person", ask.person, ask.secret_digest, turn.now_ms))
    text = f"{by} issued a credential to {ask.person}, as {ask.role}."
    turn.record("person_issued", text, step=Step(after="ACTIVE"))
    sites.reload(turn)


def _add_credential(turn: Turn, ask: AddCredential, by: str) -> None:
    _require_active(turn, ask.holder, ask.name)
    live = turn.store.rows("live_credentials", (ask.holder, ask.name))
    if ask.secret_digest in {row[0] for row in live}:
        return
    if turn.store.row("credential_on_record", (ask.holder, ask.name, ask.secret_digest)) is not None:
        raise NameTaken(f"this secret of {ask.holder} {ask.name} was good once, and is not again", "Draw another one")
    if len(live) >= _MOST_CREDENTIALS:
        raise UsageError(
            f"{ask.name} has {len(live)} credentials that are good", "End the old ones first, with `rotate --finish`"
        )
    # Later than the last one also where the clock has stood still or gone back: the newest is the one that stays.
    issued_ms = max(turn.now_ms, *(row[1] + 1 for row in live)) if live else turn.now_ms
    turn.store.run("add_credential", (ask.holder, ask.name, ask.secret_digest, issued_ms))
    text = f"{by} gave {ask.holder} {ask.name} another credential ({_short(ask.secret_digest)})."
    turn.record("credential_added", text, step=_about(ask.holder, ask.name))


def _retire_old(turn: Turn, ask: RetireCredentials, by: str) -> None:
    _require_active(turn, ask.holder, ask.name)
    old = turn.store.rows("live_credentials", (ask.holder, ask.name))[:-1]
    for digest, _ in old:
        turn.store.run("retire_credential", (turn.now_ms, ask.holder, ask.name, digest))
    if old:
        which = ", ".join(_short(digest) for digest, _ in old)
        text = f"{by} ended {len(old)} old credentials of {ask.holder} {ask.name} ({which})."
        turn.record("credentials_retired", text, step=_about(ask.holder, ask.name))


def _revoke(turn: Turn, ask: Revoke, by: str) -> Rows:
    """Revoking again is safe: whoever was cut off half-way through asks again."""
    state = _state(turn, ask.holder, ask.name)
    if state is None:
        raise _unknown(ask.holder, ask.name)
    if ask.name in {DEFAULT_SITE, DEFAULT_PERSON}:
        raise UsageError(
            f"the {ask.holder} {ask.name} belongs to a broker without credentials and cannot be revoked",
            "Make the broker ask for credentials: `tenure broker secure`",
        )
    for digest, _ in turn.store.rows("live_credentials", (ask.holder, ask.name)):
        turn.store.run("retire_credential", (turn.now_ms, ask.holder, ask.name, digest))
    released = 0
    if ask.holder == "site":
        released = sites.revoke(turn, ask.name, by, ask.reason)  # asked again, it clears what came in meanwhile
    elif state == "ACTIVE":
        turn.store.run("revoke_person", (turn.now_ms, ask.name))
        because = f" ({ask.reason})" if ask.reason else ""
        text = f"{by} revoked the credentials of {ask.name}{because}."
        turn.record("person_revoked", text, step=Step("ACTIVE", "REVOKED", ask.reason))
        sites.reload(turn)
    return [row | {"released": released} for row in _row(turn, ask.holder, ask.name)]


def _row(turn: Turn, holder: Holder, name: str) -> Rows:
    """What the broker's user of a holder is to be, as it is on record now."""
    digests = [row[0] for row in turn.store.rows("live_credentials", (holder, name))]
    row: dict[str, Any] = {"holder": holder, "name": name, "state": _state(turn, holder, name)}
    if holder == "site":
        _, kind, capabilities, most_leases, devices = turn.store.rows("site_on_record", (name,))[0]
        row |= {"kind": kind, "capabilities": json.loads(capabilities), "devices": json.loads(devices)}
        row["most_leases"] = most_leases
    else:
        row["role"] = turn.store.rows("person_on_record", (name,))[0][0]
    return [row | {"secret_digests": digests}]


def _short(digest: str) -> str:
    """Which secret it is, told by the beginning of its digest."""
    return f"sha256 {digest[:_SHOWN]}..."


def _about(holder: Holder, name: str) -> Step:
    return Step(site=name if holder == "site" else "")


def _has(turn: Turn, holder: Holder, name: str, digest: str) -> bool:
    return digest in {row[0] for row in turn.store.rows("live_credentials", (holder, name))}


def _state(turn: Turn, holder: Holder, name: str) -> str | None:
    if holder == "site":
        row = turn.store.row("site_on_record", (name,))
        return None if row is None else str(row[0])
    row = turn.store.row("person_on_record", (name,))
    return "ACTIVE" if row is None and name == DEFAULT_PERSON else None if row is None else str(row[1])


def _require_active(turn: Turn, holder: Holder, name: str) -> None:
    state = _state(turn, holder, name)
    if state is None:
        raise _unknown(holder, name)
    if state != "ACTIVE" or name in {DEFAULT_SITE, DEFAULT_PERSON}:
        because = "was revoked" if state != "ACTIVE" else "has no credential of its own"
        remedy = f"Issue another {holder}"
        if state == "ACTIVE" and holder == "person":
            remedy = "`tenure broker secure --rotate operator` is for the credential in `operator.url`"
        raise UnknownPrincipal(f"the {holder} {name} {because}", remedy)


def _unknown(holder: Holder, name: str) -> UnknownPrincipal:
    noun = "sites" if holder == "site" else "clients"
    return UnknownPrincipal(f"there is no {holder} {name}", f"See `tenure {noun} list`")


def _taken(holder: Holder, name: str, state: str) -> NameTaken:
    if name in {DEFAULT_SITE, DEFAULT_PERSON}:
        whose = "and of `operator.url`" if holder == "person" else "and of no credential"
        return NameTaken(f"the {holder} {name} is that of a broker without credentials, {whose}", "Choose another name")
    if state != "ACTIVE":
        return NameTaken(f"the {holder} {name} was revoked, and names are never used again", "Choose another name")
    noun = "sites" if holder == "site" else "clients"
    return NameTaken(f"there is a {holder} {name} already", f"`tenure {noun} rotate` gives it another credential")
