"""Would NCCL's ranks have waited for each other forever?  The null NCCL writes each rank's groups of messages in their order;
here the ranks run through them as NCCL does: the messages of a group pass together, and a group ends when all have passed."""
import collections


def messages_of(group):
    """("send" | "receive" | a collective operation, peer, bytes) of each message of a group's text."""
    return [(kind, int(peer), int(size)) for kind, peer, size in (part.split() for part in group.split("; "))]


class Rank:
    """A rank's way through its groups on one communicator."""

    def __init__(self, channel):
        self.groups = [messages_of(group) for group in channel["groups"]]
        self.order = collections.deque(channel["order"])
        self.waiting = []
        self.begin_next()

    def begin_next(self):
        while not self.waiting and self.order:
            self.waiting = list(self.groups[self.order.popleft()])

    def first(self, kind, peer):
        """The oldest waiting message of this kind with this peer."""
        return next((m for m in self.waiting if m[:2] == (kind, peer)), None)

    def passed(self, message):
        self.waiting.remove(message)
        self.begin_next()


def pass_one(ranks):
    """Lets one message pass: (it did, what is wrong with it)."""
    for number, rank in ranks.items():
        for message in rank.waiting:
            kind, peer, size = message
            if kind == "receive":
                continue
            if kind == "send":
                others = {peer: ranks[peer].first("receive", number)}
            else:
                others = {r: other.first(kind, -1) for r, other in ranks.items() if r != number}
            if None in others.values():
                continue
            wrong = [f"rank {number}: {kind} of {size} bytes meets {other[0]} of {other[2]} bytes on rank {r}"
                     for r, other in others.items() if other[2] != size]
            rank.passed(message)
            for r, other in others.items():
                ranks[r].passed(other)
            return True, wrong
    return False, []


def problems_of(name, ranks):
    """Of one communicator: sizes that differ, and who waits at the end."""
    found = []
    moved = True
    while moved and not found:
        moved, wrong = pass_one(ranks)
        found += wrong
    if not found:
        found = [f"rank {number} waits for ever: {rank.waiting[0][0]} of {rank.waiting[0][2]} bytes, peer {rank.waiting[0][1]}"
                 for number, rank in ranks.items() if rank.waiting]
    return [f"NCCL communicator {name}: {text}" for text in found]


def problems(reports):
    """Of all communicators in the reports of a run's ranks."""
    communicators = collections.defaultdict(dict)
    sizes, found = {}, []
    for report in reports:
        for channel in report["channels"]:
            communicators[channel["id"]][channel["rank"]] = Rank(channel)
            sizes[channel["id"]] = channel["size"]
    for name, ranks in communicators.items():
        missing = sorted(set(range(sizes[name])) - set(ranks))
        if missing:
            found.append(f"NCCL communicator {name}: ranks {missing} sent nothing, the others did")
        else:
            found += problems_of(name, ranks)
    return found
