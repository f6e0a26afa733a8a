"""From a broker that lets everybody in to one that knows its users: the first step of a fleet with credentials.

Three credentials are made: the coordinator's, the provisioner's, by which all others are made, and the operator's: the
person `default`, who may do everything that the coordinator lets people do. They are in their files before the broker
learns of them, and the user `default` of the broker is turned off last, so that whenever this breaks off, somebody can
go on. Done again, it takes the secrets from the files that are there and repairs what differs.

These three are on no record of the coordinator, so they are rotated here: a file that is to be rotated gets a new
secret, and the old ones stay good besides, until this is done again without that. Then only what is in the files is
good, and whoever came by anything else is cut off.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final
from urllib.parse import unquote, urlsplit

from tenure.broker.acl import coordinator_grant, person_grant, provisioner_grant
from tenure.broker.credentials import address_for, digest_of, new_secret, write_credential
from tenure.broker.keys import DEFAULT_PERSON
from tenure.broker.principals import Principal
from tenure.errors import InvalidSettings
from tenure.protocol.principal_messages import Role

if TYPE_CHECKING:
    from pathlib import Path

    from tenure.broker.provisioning import Provisioner
    from tenure.broker.url import BrokerUrl
    from tenure.clock import Entropy


@final
@dataclass(frozen=True, slots=True)
class SecurePlan:
    """What is to be secured.

    Attributes:
        namespace: the fleet's name on the broker.
        address: where the fleet's parts reach the broker, with its TLS options; a name or a password in it is left out.
        folder: where the three files go: `coordinator.url`, `provisioner.url`, `operator.url`. Made when it is missing.
        close_default: turn the user `default` off also when it needs a password; one that needs none always is.
        rotate: the files that get a new secret, by their names without `.url`.
    """

    namespace: str
    address: BrokerUrl
    folder: Path
    close_default: bool = False
    rotate: frozenset[str] = frozenset()


@final
@dataclass(frozen=True, slots=True)
class Secured:
    """What came of it.

    Attributes:
        coordinator: file with the address for `tenure coordinator --broker-url-file`.
        provisioner: file with the address for `--provisioner-url-file`; keep it where people who issue credentials are.
        operator: file with the address for an operator's commands.
        default_is_off: whether the broker's user `default` lets nobody in any more.
        is_kept: whether the users outlive a restart of the broker; without an aclfile they have to be made again.
        ended: the files of which older secrets were good until now, and are not any more.
        still_good: the files of which older secrets are good besides the new one.
    """

    coordinator: Path
    provisioner: Path
    operator: Path
    default_is_off: bool
    is_kept: bool
    ended: tuple[str, ...] = ()
    still_good: tuple[str, ...] = ()


def secure(administrator: Provisioner, plan: SecurePlan, entropy: Entropy) -> Secured:
    """Make the three users, write their files, and turn `default` off.

    Args:
        administrator: reaches every server of the broker as somebody who may make users.
        plan: what is to be secured.
        entropy: draws the secrets.

    Raises:
        InvalidSettings: a file cannot be written, or one that is there belongs to something else.
        BrokerError: see `Provisioner.put`.
    """
    try:
        plan.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidSettings(f"the folder {plan.folder} cannot be made: {error.strerror}") from error
    files: dict[str, Path] = {}
    digests: dict[str, list[str]] = {}
    older: dict[str, list[str]] = {}
    principals = _principals(plan.namespace)
    for name, principal in principals.items():
        files[name] = plan.folder / f"{name}.url"
        before = {digest for user in administrator.found(principal.user) if user for digest in user.digests}
        secret = _secret_in(files[name], plan, principal, entropy, renew=name in plan.rotate)
        older[name] = sorted(before - {digest_of(secret)})
        digests[name] = [digest_of(secret), *(older[name] if name in plan.rotate else ())]
    administrator.put(
        coordinator_grant(plan.namespace, digests["coordinator"]),
        provisioner_grant(plan.namespace, digests["provisioner"]),
        person_grant(plan.namespace, DEFAULT_PERSON, Role.OPERATOR, digests["operator"]),
    )
    ended = tuple(name for name in files if older[name] and name not in plan.rotate)
    for name in ended:
        administrator.disconnect(principals[name])
    is_off = administrator.close_default(also_with_password=plan.close_default)
    is_kept = administrator.save()
    still_good = tuple(name for name in files if older[name] and name in plan.rotate)
    return Secured(**files, default_is_off=is_off, is_kept=is_kept, ended=ended, still_good=still_good)


def _principals(namespace: str) -> dict[str, Principal]:
    return {
        "coordinator": Principal(namespace, "coordinator"),
        "provisioner": Principal(namespace, "provisioner"),
        "operator": Principal(namespace, "client", DEFAULT_PERSON),
    }


def _secret_in(path: Path, plan: SecurePlan, principal: Principal, entropy: Entropy, *, renew: bool) -> str:
    """The secret of a file that is there, else or to `renew` it a new one, which is in the file when this returns."""
    try:
        split = urlsplit(path.read_text(encoding="utf-8").strip())
    except FileNotFoundError:
        secret = new_secret(entropy)
    except (OSError, ValueError) as error:
        raise InvalidSettings(f"{path} cannot be read", "Move it away") from error
    else:
        if unquote(split.username or "") != principal.user or not split.password:
            raise InvalidSettings(f"{path} is not the credential of {principal.user}", "Name another folder")
        secret = new_secret(entropy) if renew else unquote(split.password)
    # Also when it was there: the broker may have moved.
    write_credential(path, address_for(plan.address, principal, secret))
    return secret
