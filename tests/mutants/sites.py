"""Mutants of what keeps sites apart, and of what happens to one that is thrown out."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Edit, Mutant, mutant

_ACCEPTANCE: Final = "coordinator/acceptance.py"
_DEALING: Final = "coordinator/dealing.py"
_DIRECTIVES: Final = "coordinator/directives.py"
_MEMBERSHIP: Final = "coordinator/membership.py"
_REPORTS: Final = "coordinator/reports.py"
_SITES: Final = "coordinator/sites.py"
_SWEEPER: Final = "coordinator/sweeper.py"

APART: Final = (
    Mutant(
        "bound_at_another_site",
        "a lease is bound only to a worker of the site that it was offered to",
        (
            Edit(_ACCEPTANCE, "    if worker.site != lease.site:\n        return False\n", ""),
            Edit(
                "coordinator/store/sql/lease.sql",
                "AND digest = ? AND site_id = ? AND state = 'OFFERED'",
                "AND digest = ? AND ? <> '' AND state = 'OFFERED'",
            ),
            Edit(
                "coordinator/store/migrations/0005_sites.sql",
                "WHERE worker_id = NEW.worker_id AND site_id <> NEW.site_id)",
                "WHERE worker_id = NEW.worker_id AND site_id <> NEW.site_id AND site_id = '')",
            ),
        ),
    ),
    mutant(
        "late_word_of_another_site",
        "nothing that another site says of a lease is merely late",
        _ACCEPTANCE,
        "    if lease[10] != who.site:\n        return Reason.WRONG_SITE\n",
        "",
    ),
    mutant(
        "names_of_others",
        "a worker's id begins with the name of its site, and of no other",
        _REPORTS,
        " or (worker is None and turn.memory.sites.home_of(report.worker_id) != site):",
        ":",
    ),
    mutant(
        "more_than_granted",
        "a site offers only what it was granted",
        _MEMBERSHIP,
        "return frozenset(offered) & self.capabilities if self.capabilities else frozenset(offered)",
        "return frozenset(offered)",
    ),
    mutant(
        "label_of_another_site",
        "where a worker is, the coordinator says",
        _MEMBERSHIP,
        "if label[0] != SITE_LABEL and self._may_say(label)}",
        "if self._may_say(label)}",
    ),
    mutant(
        "device_made_up",
        "a site's workers have only devices that the site was granted",
        _MEMBERSHIP,
        "if label[0] != SITE_LABEL and self._may_say(label)}",
        "if label[0] != SITE_LABEL}",
    ),
    mutant(
        "grants_taken_up_late",
        "what a site is not granted any more is offered to none of its workers from then on",
        _SITES,
        "        worker.capabilities = site.granted(worker.capabilities)\n",
        "",
    ),
    mutant(
        "device_kept",
        "a device that a site is not granted any more is none of its workers' from then on",
        _SITES,
        "        worker.labels = site.labels(worker.labels)\n",
        "",
    ),
    mutant(
        "begun_is_forgotten",
        "what may run already at a site that is not granted it any more goes on, also after a restart",
        _SITES,
        "    return begun and site is not None and not site.granted([lease.capability])\n",
        "    return begun and site is None\n",
    ),
    mutant(
        "held_against_the_site",
        "a site pays nothing for what a person takes back",
        _DIRECTIVES,
        "    if turn.actor.is_person:\n        return\n    turn.memory.sites.idle",
        "    turn.memory.sites.idle",
    ),
    mutant(
        "more_leases_than_allowed",
        "a site holds no more leases than it may",
        "coordinator/scheduler.py",
        "            credit = min(credit, known.most_leases - turn.leases.of_sites[site])\n",
        "            credit = min(credit, known.most_leases)\n",
    ),
    mutant(
        "full_site_is_chosen",
        "nothing is directed to a site that holds as many leases as it may",
        _MEMBERSHIP,
        "if 0 < site.most_leases <= holding.get(name, 0)",
        "if 0 < site.most_leases < holding.get(name, 0)",
    ),
    mutant(
        "boaster_first",
        "a site that says it has endless room gets no more than others",
        _DEALING,
        "(site in idle, holding.get(site, 0), site)",
        "(site in idle, -rooms[site], site)",
    ),
    mutant(
        "idle_first",
        "a site that lets offers lie comes last",
        _DEALING,
        "(site in idle, holding.get(site, 0), site)",
        "(False, holding.get(site, 0), site)",
    ),
    mutant(
        "given_back_forgotten",
        "a site that gives back or loses what it was offered comes last",
        _DIRECTIVES,
        "    turn.memory.sites.idle.add(lease.site, turn.elapsed_ms)\n",
        "",
    ),
    mutant(
        "taking_is_enough",
        "a site that takes another task has not made up for what it gave back",
        "coordinator/leases.py",
        "    lease.bound_ms = turn.elapsed_ms\n",
        "    turn.memory.sites.idle.discard(lease.site)\n",
    ),
    mutant(
        "last_for_good",
        "a site whose result is accepted has made up for what it gave back",
        _ACCEPTANCE,
        "    turn.memory.sites.idle.discard(lease.site)\n",
        "",
    ),
    mutant(
        "an_old_hold_counts",
        "only what a site has taken since makes up for what it gave back",
        _DEALING,
        "if self._since.get(site, now_ms) < bound_ms <= now_ms - _LONG_HOLD_MS:",
        "if bound_ms <= now_ms - _LONG_HOLD_MS:",
    ),
    mutant(
        "given_back_in_a_loop",
        "what a site gives back waits, whatever it says of the reason",
        _REPORTS,
        "must_wait = event.cause is Cause.REFUSED or worker.site != DEFAULT_SITE",
        "must_wait = event.cause is Cause.REFUSED",
    ),
    mutant(
        "boaster_is_chosen",
        "a site that says it has endless room is directed no more than others",
        "coordinator/fleet.py",
        "return worker.site not in self.idle, -self.holding.get(worker.site, 0), worker.free()",
        "return worker.site not in self.idle, 0, worker.free()",
    ),
    mutant(
        "lies_for_good",
        "what a site lets lie goes to another one that has room",
        _SWEEPER,
        " or _has_other_site(turn, lease, open_envelope(task[3])):",
        ":",
    ),
)

REVOKED: Final = (
    mutant(
        "revoked_is_asked_for_more",
        "what a revoked site says is refused as such",
        _REPORTS,
        "_stranger(turn, site, report, worker, event) if known is not None else Reason.SITE_REVOKED",
        "_stranger(turn, site, report, worker, event)",
    ),
    mutant(
        "replaced_at_once",
        "what a revoked site ran is replaced only when a worker that hears of nothing has stopped it",
        _SITES,
        'was revoked", expiry_ms(lease.ttl_ms))',
        'was revoked", lease.ttl_ms * 0)',
    ),
    mutant(
        "allowed_at_once",
        "a person's word replaces what a revoked site ran no earlier",
        _DIRECTIVES,
        "may_run=reason == Cause.SITE_REVOKED",
        "may_run=reason is None",
    ),
    mutant(
        "cancelled_unproved_there",
        "what is being cancelled at a revoked site is over when its lease is",
        _SITES,
        "    if lease.stopping:\n        return False\n",
        "",
    ),
    mutant(
        "unstarted_there",
        "what starts on its claim may be running at a site that is revoked",
        _SITES,
        'if lease.state is LeaseState.OFFERED and lease.start == "granted":',
        "if lease.state is LeaseState.OFFERED:",
    ),
    mutant(
        "revoked_result_adopted",
        "a result of a revoked site is never adopted",
        "coordinator/adoption.py",
        "frozenset({Reason.WRONG_SITE, Reason.SITE_REVOKED})",
        "frozenset({Reason.WRONG_SITE})",
    ),
    mutant(
        "leftovers_of_a_site",
        "nothing is left at the broker of a site that was revoked",
        _SITES,
        "        keys.forget_site(name, [str(worker_id) for worker_id, _ in rows], sorted(capabilities))\n",
        "",
    ),
    mutant(
        "leftovers_of_many",
        "nothing is left at the broker of a revoked site, however many workers it had",
        _SITES,
        "            sites.cleared(name, rows[-1][0])\n            continue\n",
        "            pass\n",
    ),
    mutant(
        "cleared_for_ever",
        "what is known to be gone of a revoked site is not looked for at each start",
        _SITES,
        "        if cleared_at_ms is None:\n",
        "        if name:\n",
    ),
)

MUTANTS: Final = (*APART, *REVOKED)
