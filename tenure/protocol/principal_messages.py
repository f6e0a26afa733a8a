"""What operators ask about sites and people: who may take part, with which credential, until when.

A secret never travels in these: the digest of one does, which is what the broker keeps, too.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from tenure.protocol.campaign_messages import Texts
from tenure.protocol.message import Count, Digest, Message, Name, SiteName, Text


class SiteKind(StrEnum):
    """What a site is; it changes nothing about its rights."""

    AGENT = "agent"  #: somebody's machine
    COMPUTE = "compute"  #: a machine or a fleet of them for any work
    BATCH = "batch"  #: a cluster's queue
    LAB = "lab"  #: instruments


class Role(StrEnum):
    """What a person may ask."""

    OPERATOR = "operator"  #: everything
    SUBMITTER = "submitter"  #: submit, read, and cancel what the same person has submitted
    OBSERVER = "observer"  #: read


Holder = Literal["site", "person"]


class IssueSite(Message):
    """Make a site known, with the capabilities that it is granted and its first credential."""

    kind: Literal["issue_site"] = "issue_site"
    site: SiteName
    site_kind: SiteKind = SiteKind.COMPUTE
    capabilities: Annotated[tuple[Name, ...], Field(min_length=1, max_length=64)]
    devices: Texts = ()
    """Values of the label `device` that its workers may have; any other is taken from them."""
    most_leases: Count = 0
    """How many live leases it may hold at once; 0: as many as its workers want."""
    secret_digest: Digest


class GrantSite(Message):
    """Grant a site these capabilities and devices, and nothing else from now on. What it holds goes on."""

    kind: Literal["grant_site"] = "grant_site"
    site: SiteName
    capabilities: Annotated[tuple[Name, ...], Field(min_length=1, max_length=64)]
    devices: Texts = ()
    most_leases: Count | None = None
    """As for `IssueSite`; None: as many as before."""


class ChangeRole(Message):
    """Give a person another role. What was submitted in the old one goes on."""

    kind: Literal["change_role"] = "change_role"
    person: SiteName
    role: Role


class IssuePerson(Message):
    """Make a person known, with a role and a first credential."""

    kind: Literal["issue_person"] = "issue_person"
    person: SiteName
    role: Role = Role.SUBMITTER
    secret_digest: Digest


class AddCredential(Message):
    """Let a holder come with a second secret, besides the one that it has."""

    kind: Literal["add_credential"] = "add_credential"
    holder: Holder
    name: SiteName
    secret_digest: Digest


class RetireCredentials(Message):
    """End every credential of a holder but the newest: the end of a rotation."""

    kind: Literal["retire_credentials"] = "retire_credentials"
    holder: Holder
    name: SiteName


class Revoke(Message):
    """Throw a holder out for good, at once."""

    kind: Literal["revoke"] = "revoke"
    holder: Holder
    name: SiteName
    reason: Text = ""
