"""Workers: hello, leaving, drain, and registration by hand.

A worker is known by its id within the site whose inbox it uses. Every hello begins a generation; what an older
generation says afterwards is refused.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tenure.broker.base import WorkerAddress
from tenure.coordinator import directives, leases
from tenure.coordinator.fleet import Fleet, WorkerView
from tenure.coordinator.journal import Step
from tenure.coordinator.membership import DEVICE_LABEL, Site, site_of
from tenure.errors import UnknownWorker
from tenure.protocol.control_messages import Drain, HelloRefused, Reason, Registered, Stop, StopReason
from tenure.protocol.states import LeaseState, WorkerState
from tenure.protocol.timing import DEFAULT_LEASE_TTL_MS
from tenure.protocol.worker_messages import Cause, Hello

if TYPE_CHECKING:
    from tenure.coordinator.store.database import Database
    from tenure.coordinator.turn import Turn
    from tenure.protocol.client_messages import RegisterWorker
    from tenure.protocol.worker_messages import Held, Report


def hello(turn: Turn, site: Site, report: Report, event: Hello) -> None:
    """Register a worker or a new generation of it, and tell it which of the attempts that it holds are over.

    It offers only what its site is granted.
    """
    before = turn.fleet.get(report.worker_id)
    if not (_stays_what_it_is(turn, report, event) and _stays_of_its_kind(turn, site, report, event)):
        return
    worker = _introduced(turn, site, report, event)
    draining = before is not None and before.state is WorkerState.DRAINING and before.generation == worker.generation
    if draining:
        worker.state = WorkerState.DRAINING  # the same agent again: only a new one takes work again
    else:
        _store(turn, worker, event)
    _enter(turn, worker, before)
    if event.predecessor:
        _end_predecessor(turn, worker, event)
    turn.out.order(worker.address, Registered(generation=worker.generation, ordinal=event.ordinal))
    if draining:
        turn.out.order(worker.address, Drain())
    for held in event.held:
        current = _is_current(turn, worker, held)
        if not current and held.state in {"claimed", "launched", "running"}:
            stop = Stop(task_id=held.task_id, fence=held.fence, reason=StopReason.SUPERSEDED)
            turn.out.order(worker.address, stop)
    if (before is None or before.generation != worker.generation) and not worker.executor_of:
        devices = {f"the device {value}" for key, value in set(event.labels) - worker.labels if key == DEVICE_LABEL}
        _record_hello(turn, worker, before, (frozenset(event.capabilities) - worker.capabilities) | devices)


def _introduced(turn: Turn, site: Site, report: Report, event: Hello) -> WorkerView:
    before = turn.fleet.get(report.worker_id)
    return WorkerView(
        worker_id=report.worker_id,
        site=site.name,
        generation=report.generation,
        state=WorkerState.ACTIVE,
        slots=event.slots,
        capabilities=site.granted(event.capabilities),
        labels=site.labels(event.labels),
        resources=dict(event.resources),
        ttl_ms=event.ttl_ms,
        seen_ms=turn.elapsed_ms,
        window=report.window,
        remaining_ms=event.remaining_ms,
        beat=before.beat if before is not None and before.generation == report.generation else -1,
        first_fence=_first_fence(turn, report),
        executor_of=event.executor_of or "",
        launches=_kind(turn, report.worker_id, event.launches),
    )


def _record_hello(turn: Turn, worker: WorkerView, before: WorkerView | None, refused: frozenset[str]) -> None:
    offers = ", ".join(sorted(worker.capabilities)) or "nothing"
    more = f"; the site was not granted {', '.join(sorted(refused))}" if refused else ""
    text = f"Worker {worker.worker_id} of site {worker.site} said hello (generation {worker.generation})"
    step = Step(before.state if before is not None else "", worker.state)
    _record(turn, worker, "worker_hello", f"{text}, offers {offers}{more}.", step)


def _record(turn: Turn, worker: WorkerView, kind: str, text: str, step: Step) -> None:
    """Record what a worker has become, unless that is its own doing and its site has used up its records."""
    quotas = turn.memory.quotas
    if turn.actor.is_person or quotas.may_record(worker.site, turn.elapsed_ms):
        turn.record(kind, text, worker_id=worker.worker_id, step=step)
    elif quotas.is_first(worker.site, "events"):
        text = f"Site {worker.site} has used up its quota of records: that its workers come and go is not recorded."
        turn.record("refused", text, step=Step(reason="records", site=worker.site))


def _is_current(turn: Turn, worker: WorkerView, held: Held) -> bool:
    lease = turn.leases.get(held.task_id)
    if lease is None or lease.fence != held.fence:
        return False
    return worker.worker_id == lease.parent or lease.worker_id in {"", worker.worker_id}


def _stays_what_it_is(turn: Turn, report: Report, event: Hello) -> bool:
    """An executor stays one, of the same parent, and nobody else becomes one: another word is that of a stranger."""
    row = turn.store.row("worker", (report.worker_id,))
    claimed = event.executor_of or ""
    if claimed != report.worker_id and (row is None or row[6] == claimed):
        return True
    if turn.memory.is_first_refusal(report.worker_id, "executor_of"):
        text = f"{report.worker_id} says that it is an executor of {claimed or 'nobody'}, which it is not: refused."
        turn.record("refused", text, worker_id=report.worker_id, step=Step(reason="executor_of"))
    return False


def _stays_of_its_kind(turn: Turn, site: Site, report: Report, event: Hello) -> bool:
    """A worker that runs tasks itself never has executors started, nor the reverse.

    Neither kind can tell what the other has begun of what the broker holds for their id, and would begin it again.
    """
    launches = _kind(turn, report.worker_id, event.launches)
    if event.launches in {None, launches}:
        return True
    reason = Reason.OTHER_KIND
    refused = HelloRefused(generation=report.generation, ordinal=event.ordinal, reason=reason)
    turn.out.order(WorkerAddress(site.name, report.worker_id), refused)
    if turn.memory.is_first_refusal(report.worker_id, reason):
        kinds = ("runs tasks itself", "has executors started")
        known, said = (kinds[bool(kind)] for kind in (launches, event.launches))
        text = f"{report.worker_id} {known}, and an agent under its id that {said} was refused."
        turn.record("refused", text, worker_id=report.worker_id, step=Step(reason=reason))
    return False


def _kind(turn: Turn, worker_id: str, said: bool | None) -> bool | None:  # noqa: FBT001 - three values, no switch
    """Whether it has executors started, as it has said first; None: it never said."""
    row = turn.store.row("worker", (worker_id,))
    return said if row is None or row[7] is None else bool(row[7])


def _first_fence(turn: Turn, report: Report) -> int:
    row = turn.store.row("worker", (report.worker_id,))
    if row is None:
        return 0
    if row[2] == report.generation:
        return int(row[5])
    newest = turn.store.row("fence_counter")
    return int(newest[0]) if newest is not None else 0


def _end_predecessor(turn: Turn, worker: WorkerView, event: Hello) -> None:
    """The leases that the agent before this one was bound to, and that are not in its spool, are lost.

    Only those: another machine that runs under the same id by mistake proves nothing about this one's. Nor does the
    restart prove the end of what the agent before could not end.
    """
    held = {(each.task_id, each.fence) for each in event.held}
    for lease in turn.leases.of_worker(worker.worker_id):
        earlier = lease.state is LeaseState.ACTIVE and lease.generation == event.predecessor < worker.generation
        if earlier and not lease.unproved and (lease.task_id, lease.fence) not in held:
            leases.end(turn, lease, LeaseState.RELEASED, Cause.AGENT_RESTARTED)
            detail = f"the agent of {worker.worker_id} was restarted, and what it ran is gone"
            directives.after_loss(turn, lease, directives.Loss(Cause.AGENT_RESTARTED, detail))


def register_by_hand(turn: Turn, ask: RegisterWorker) -> None:
    """Record an executor that speaks for itself; it gets no work by itself, only by `assign`."""
    row = turn.store.row("worker", (ask.worker_id,))
    before = turn.fleet.get(ask.worker_id)
    site = turn.memory.sites.get(row[1] if row is not None else turn.memory.sites.home_of(ask.worker_id))
    if site is None:
        raise UnknownWorker(f"{ask.worker_id} is of a site that was revoked", "Choose another id")
    worker = WorkerView(
        worker_id=ask.worker_id,
        site=site.name,
        generation=row[2] + 1 if row is not None else 1,
        state=WorkerState.ACTIVE,
        slots=ask.slots,
        capabilities=site.granted(ask.capabilities),
        labels=site.labels(ask.labels),
        resources=dict(ask.resources),
        ttl_ms=DEFAULT_LEASE_TTL_MS,
        seen_ms=turn.elapsed_ms,
        by_hand=True,
        launches=_kind(turn, ask.worker_id, None),
        window=ask.slots,
    )
    event = Hello(slots=ask.slots, capabilities=ask.capabilities, ttl_ms=worker.ttl_ms)
    _store(turn, worker, event)
    _enter(turn, worker, before)
    step = Step(before.state if before is not None else "", worker.state, reason="by_hand", site=worker.site)
    text = f"Worker {ask.worker_id} was registered by hand."
    turn.record("worker_hello", text, worker_id=ask.worker_id, step=step)


def leave(turn: Turn, worker: WorkerView, *, gone: bool) -> None:
    """A worker drains, or has ended with nothing in hand. An executor that has ended leaves no row and no keys.

    One that a lease is still bound to is kept until that is over: its parent is known by it.
    """
    if not gone or (worker.executor_of and worker.bound):
        change_state(turn, worker, WorkerState.DRAINING)
        return
    if worker.executor_of:
        turn.store.run("forget_executor", (worker.worker_id,))
        turn.out.departed.append(worker.address)
    else:
        change_state(turn, worker, WorkerState.OFFLINE)
    turn.fleet.remove(worker.worker_id)


def dismiss(turn: Turn, worker: WorkerView, *, holds: bool) -> None:
    """A worker takes part no more, whether it ends or not; an executor that `holds` a lease leaves its row with it."""
    if worker.executor_of and not holds:
        turn.store.run("forget_executor", (worker.worker_id,))
    else:
        change_state(turn, worker, WorkerState.OFFLINE)
    turn.fleet.remove(worker.worker_id)


def drain(turn: Turn, worker_id: str) -> None:
    """Ask a worker to take nothing more and end when it holds nothing. Raises `UnknownWorker`."""
    worker = require(turn, worker_id)
    change_state(turn, worker, WorkerState.DRAINING)
    turn.out.order(worker.address, Drain())
    if worker.by_hand and worker.bound == 0:
        leave(turn, worker, gone=True)


def require(turn: Turn, worker_id: str) -> WorkerView:
    """The worker of that id. Raises `UnknownWorker`."""
    worker = turn.fleet.get(worker_id)
    if worker is None:
        raise UnknownWorker(f"no worker {worker_id} is registered, or it is OFFLINE", "See `tenure workers list`")
    return worker


def change_state(turn: Turn, worker: WorkerView, state: WorkerState) -> None:
    """A step of the worker state machine, recorded; nothing when it is in that state."""
    if worker.state is state:
        return
    turn.store.run("worker_state", (state, worker.worker_id, state))
    turn.store.run("worker_seen", (turn.now_ms, worker.worker_id))
    step = Step(worker.state, state, site=worker.site)
    worker.state = state
    _record(turn, worker, "worker_state", f"Worker {worker.worker_id} became {state}.", step)
    if state is WorkerState.ACTIVE:
        wake(turn, worker)


def wake(turn: Turn, worker: WorkerView) -> None:
    """Let the scheduler look at everything that this worker could take."""
    turn.memory.ready.update(worker.capabilities)
    turn.memory.directed_ready = True


def load(store: Database, elapsed_ms: int) -> Fleet:
    """The workers as the store has them, each as if just seen."""
    fleet = Fleet()
    sites = {row[0]: site_of(row) for row in store.rows("active_sites")}
    for row in store.rows("workers"):
        site = sites.get(row[1], Site(row[1]))
        fleet.put(
            WorkerView(
                worker_id=row[0],
                site=row[1],
                generation=row[2],
                state=WorkerState(row[3]),
                by_hand=bool(row[4]),
                slots=row[5],
                capabilities=frozenset(json.loads(row[6])),
                labels=site.labels((key, value) for key, value in json.loads(row[7])),
                resources=dict(json.loads(row[8])),
                ttl_ms=row[9],
                seen_ms=elapsed_ms,
                window=row[5],
                first_fence=row[10],
                executor_of=row[11],
                launches=None if row[12] is None else bool(row[12]),
            )
        )
    return fleet


def _store(turn: Turn, worker: WorkerView, event: Hello) -> None:
    turn.store.run(
        "put_worker",
        (
            worker.worker_id,
            worker.site,
            worker.generation,
            int(worker.by_hand),
            worker.slots,
            json.dumps(sorted(worker.capabilities)),
            json.dumps(sorted(worker.labels)),
            json.dumps(sorted(worker.resources.items())),
            worker.ttl_ms,
            event.host,
            event.pid,
            event.version,
            turn.now_ms,
            turn.now_ms,
            worker.first_fence,
            worker.executor_of,
            worker.launches,
        ),
    )


def _enter(turn: Turn, worker: WorkerView, before: WorkerView | None) -> None:
    if before is not None:
        worker.bound, worker.reserved = before.bound, before.reserved
    else:
        for lease in turn.leases:
            if worker.worker_id in lease.charged:
                worker.bound += 1
                if lease.needs is not None and lease.directed_to == worker.worker_id:
                    worker.reserve(lease.needs, 1)
    turn.fleet.put(worker)
    if worker.executor_of:
        return
    turn.out.streams.update(worker.streams())
    wake(turn, worker)
