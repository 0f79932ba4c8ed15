"""What is written at the hub about a workload that was sent away. Pure but for the memory it reads."""

from datetime import datetime

from services.dispatcher.planning.nomination import Dispatcher
from services.dispatcher.planning.plan import Situation, Standing, unsettled
from services.dispatcher.store import Key, Knowledge
from shared.contracts.messages.effects import Dispatch
from shared.contracts.messages.spokes import Homecoming

__all__ = ["homecoming"]


def homecoming(
    knowledge: Knowledge, key: Key, situation: Situation, cluster: str, now: datetime
) -> Homecoming | None:
    """What the hub's patcher should write now; None: nothing that is known of yet."""
    last = knowledge.homes.get(key)
    orders = {spoke: record.message for spoke, record in knowledge.orders.get(key, {}).items()}
    if not orders:
        return None
    # The orders of the newest life; those of an earlier one have nothing to say at home any more.
    newest = max(orders.values(), key=lambda order: order.number)
    chosen = next((order for order in orders.values() if order.state == "chosen"), None)
    about = chosen or newest
    if about.target is None:
        return None
    external = situation.rules.dispatcher is Dispatcher.EXTERNAL
    home = Homecoming(
        cluster=cluster,
        namespace=key[0],
        name=key[1],
        uid=about.uid,
        target=about.target,
        nominated=None if external else [],
        at=now,
        traceparent=None,
    )
    if chosen is not None:
        status = _status_of(knowledge, key, chosen, situation)
        if status is None and last is not None and last.message.uid == about.uid:
            status = last.message.status
        return home.model_copy(update={"spoke": chosen.spoke, "status": status})
    ended = knowledge.ended(key, about.uid)
    if ended is not None:
        return home.model_copy(update={"status": ended.ended})
    offered = sorted(spoke for spoke, order in orders.items() if order.state == "offered")
    if not external:
        home = home.model_copy(update={"nominated": offered})
    if last is None or last.message.uid != about.uid or last.message.status is None:
        return home
    # What ran elsewhere does so no more; until that is certain, home shows it as it was.
    settled = not unsettled(situation)
    status = {} if settled and not _over(knowledge, key, about) else last.message.status
    return home.model_copy(update={"status": status})


def _status_of(
    knowledge: Knowledge, key: Key, chosen: Dispatch, situation: Situation
) -> dict[str, object] | None:
    copy = knowledge.copies.get(key, {}).get(chosen.spoke)
    if copy is None or copy.number != chosen.number:
        return None
    job = knowledge.hub.job(key, chosen.uid)
    finished = copy.standing is Standing.FINISHED
    if job is not None and not job.managed and not finished:
        return None  # Its own controller here writes it too, until it has ended.
    waits = {Standing.WAITING, Standing.ENDING}
    if not finished and situation.copies.get(chosen.spoke) in waits:
        return None
    return copy.status or None


def _over(knowledge: Knowledge, key: Key, about: Dispatch) -> bool:
    """The job at home has ended, or is gone: its status stays what it is."""
    return knowledge.hub.job(key, about.uid) is None
