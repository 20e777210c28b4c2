"""The rates of a traced step's lanes that move bytes."""
import collections
import json

SKIPPED = 1e6  # bytes a microsecond, above any bus: an operation with nothing left to do, as a chunk that is late for an early update


def rates(trace):
    """A line of the lanes of rank 0 in TRACE, a trace.json: bytes over the time that they are busy, and their share of the step."""
    events = json.loads(trace.read_text(encoding="utf-8"))
    events = events["traceEvents"] if isinstance(events, dict) else events
    measured = [e for e in events if e["ph"] == "X" and e["pid"] == 0]
    step = max(e["ts"] + e["dur"] for e in measured) - min(e["ts"] for e in measured)
    moved, busy = collections.Counter(), collections.Counter()
    for event in measured:
        if 0 < event["args"].get("moved_bytes", 0) < SKIPPED * event["dur"]:
            moved[event["cat"]] += event["args"]["moved_bytes"]
            busy[event["cat"]] += event["dur"]
    lanes = [f"{lane} {moved[lane] / max(busy[lane], 1e-9) / 1e3:.1f} GB/s, busy {busy[lane] / step:.0%}" for lane in sorted(moved)]
    return f"lanes of a step of {step / 1e3:.1f} ms: {'; '.join(lanes) or 'none moves bytes'}"
