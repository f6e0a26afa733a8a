"""Mutants of what users of the broker are granted, and of how a credential is found."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import mutant

_ACL: Final = "broker/acl.py"

MUTANTS: Final = (
    mutant("inbox_of_all", "a site adds to its own inbox", _ACL, 'key.write(f"inbox:{site}")', 'key.write("inbox:*")'),
    mutant(
        "capability_of_all",
        "a site takes only what it was granted",
        _ACL,
        'key.read(f"cap:{site}:{each}")',
        'key.read(f"cap:{site}:*")',
    ),
    mutant(
        "own_stream_of_all",
        "a site takes from streams of its own",
        _ACL,
        'key.read(f"own:{site}:*")',
        'key.read("own:*")',
    ),
    mutant("orders_of_all", "a site reads its own orders", _ACL, 'key.read(f"ctl:{site}:*")', 'key.read("ctl:*")'),
    mutant("beats_for_all", "a site renews its own leases", _ACL, 'key.write(f"hb:{site}:*")', 'key.write("hb:*")'),
    mutant(
        "stages_for_all", "a site stages for its own attempts", _ACL, 'key.write(f"stg:{site}:*")', 'key.write("stg:*")'
    ),
    mutant(
        "site_name_begins_alike",
        "a site is not one whose name begins like its own",
        _ACL,
        'key.write(f"log:{site}:*")',
        'key.write(f"log:{site}*")',
    ),
    mutant("observer_uploads", "an observer changes nothing", _ACL, "if role is not Role.OBSERVER:", "if role:"),
    mutant("asks_for_all", "a person asks by a stream of one's own", _ACL, 'f"rpc:{person}"', '"rpc:*"'),
    mutant("uploads_as_site", "a person stages as nobody else", _ACL, 'own = f"stg:@{person}:*"', 'own = "stg:*"'),
    mutant(
        "contents_replaced",
        "a person replaces no content that is there",
        _ACL,
        'Selector(("renamenx",),',
        'Selector(("rename", "renamenx"),',
    ),
    mutant(
        "coordinator_makes_users",
        "the coordinator has no right to make users",
        _ACL,
        '("discard", "exec", "info",',
        '("acl|setuser", "discard", "exec", "info",',
    ),
    mutant("old_rights_stay", "a user is what its grant says and nothing more", _ACL, '"reset", "on",', '"on",'),
    mutant(
        "credential_read_once",
        "a credential's file is read again before each connection",
        "broker/url.py",
        "        if self.source is None:\n",
        "        if self.url:\n",
    ),
    mutant(
        "site_called_coordinator",
        "no site is called like the coordinator of another fleet",
        "broker/principals.py",
        "        if self.name in _RESERVED:\n",
        "        if not self.namespace:\n",
    ),
)
