#!/usr/bin/env python3
"""output.memory_snapshot: the pickle replays to the planned peak, and torch's own viewer functions read it.

Usage: memory_snapshot_test.py SLUICE [MEMORY_VIZ].  Python's pickle reads every file; MEMORY_VIZ is the path of torch's
_memory_viz.py, a file that needs no torch.
"""
import importlib.util
import json
import pathlib
import pickle
import re
import subprocess
import sys
import tempfile

CONFIG = """model: {type: llama, layers: 2, hidden: 64, heads: 2, seq: 64}
data: {text: [text.txt]}
train: {steps: 4, micro_batch: 2, global_batch: 8, eval_steps: 0, dtype: bf16}
zero: {stage: 3}
schedule: {type: constant}
recompute: {mode: full}
launch: {nproc: 2, threads: 1}
checkpoint: {at_end: false}
output: {dir: run, memory_snapshot: [2, 4]}
"""
OFF_DEVICE = [f"offload.{what}={tier}" for what, tier in (("optimizer", "nvme"), ("parameters", "host"), ("gradients", "host"),
                                                       ("activations", "host"))] + [
    "offload.nvme_path=[swap]", "offload.direct=false"]
TIERS = ("device", "host", "nvme")


def train(sluice, scratch, settings=()):
    arguments = [word for setting in settings for word in ("--set", setting)]
    done = subprocess.run([sluice, "train", "c.yaml", *arguments], cwd=scratch, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, encoding="utf-8")
    assert done.returncode == 0, done.stdout
    return done.stdout


def replay(snapshot, device):
    """Returns the highest number of reserved and of allocated bytes, going backwards from the snapshot's state."""
    segments = [s for s in snapshot["segments"] if s["device"] == device]
    reserved = {s["address"]: s["total_size"] for s in segments}
    allocated = {}
    for segment in segments:
        assert sum(b["size"] for b in segment["blocks"]) == segment["total_size"], segment
        at = segment["address"]
        for block in segment["blocks"]:
            assert block["address"] == at, (block, at)
            at += block["size"]
            if block["state"] == "active_allocated":
                allocated[block["address"]] = block["size"]
        assert segment["allocated_size"] == sum(b["size"] for b in segment["blocks"] if b["state"] == "active_allocated")
    most = [sum(reserved.values()), sum(allocated.values())]
    time = None
    for event in reversed(snapshot["device_traces"][device]):
        assert time is None or event["time_us"] <= time, event
        time = event["time_us"]
        action, address, size = event["action"], event["addr"], event["size"]
        if action == "free_completed":
            assert address not in allocated, event
            allocated[address] = size
        elif action == "alloc":
            assert allocated.pop(address) == size, event
        elif action == "segment_free":
            reserved[address] = size
        elif action == "segment_alloc":
            assert reserved.pop(address) == size, event
        else:
            assert action == "free_requested", event
        live = sorted(allocated.items())
        for (begin, bytes_), (next_, _) in zip(live, live[1:]):
            assert begin + bytes_ <= next_, (event, "two live buffers overlap")
        most = [max(most[0], sum(reserved.values())), max(most[1], sum(allocated.values()))]
    return most


def check_run(sluice, scratch, name, settings, viewer):
    output = train(sluice, scratch, settings)
    assert output.count("memory after step") == 2, output
    plan = json.loads((scratch / "run" / "plan.json").read_text())
    names = sorted(path.name for path in (scratch / "run" / "memory").iterdir())
    assert names == [f"step-{s}-rank-{r}.{end}" for s in (2, 4) for r in (0, 1) for end in ("html", "pickle")], names
    for path in sorted((scratch / "run" / "memory").glob("*.pickle")):
        with open(path, "rb") as stream:
            snapshot = pickle.load(stream)
        for device, tier in enumerate(TIERS):
            reserved, allocated = replay(snapshot, device)
            assert allocated <= reserved
            planned = plan["tiers"][tier]["peak"]
            # The host's peak counts the step program too, which is no array.
            beside = plan["tiers"][tier]["by_tag"].get("step_program", 0) if tier == "host" else 0
            assert reserved == planned - beside, (name, tier, reserved, planned, beside)
        if viewer is not None:
            text = viewer.segsum(snapshot) + viewer.trace(snapshot)
            flames = viewer.memory(snapshot, format_flamegraph=lambda lines: lines)
            assert "tag:0:" in flames, flames[:400]
            assert "torch-memory" in viewer.trace_plot(snapshot) or "add_local_files" in viewer.trace_plot(snapshot)
            assert "add_local_files" in viewer.segment_plot(snapshot)
            assert len(text) > 100
    page = (scratch / "run" / "memory" / "step-2-rank-0.html").read_text()
    data = json.loads(re.search(r'<script type="application/json" id="data">\n(.*?)\n</script>', page, re.S).group(1))
    assert data["step"] == 2 and data["tiers"][0]["planned"] == plan["tiers"]["device"]["peak"]
    curve = data["tiers"][0]["curve"]
    highest = max(map(sum, zip(*(layer["bytes"] for layer in curve["layers"]))))
    assert highest == data["tiers"][0]["planned"], (highest, data["tiers"][0]["planned"])
    print(f"{name}: {len(names)} files, tiers {[tier['name'] for tier in data['tiers']]}")


def check_request(sluice, scratch):
    """The file snapshot-now asks rank 0 for a snapshot; a folder that cannot be made is a warning."""
    (scratch / "asked").mkdir()
    (scratch / "asked" / "snapshot-now").touch()
    train(sluice, scratch, ["output.dir=asked", "output.memory_snapshot=[]"])
    assert not (scratch / "asked" / "snapshot-now").exists()
    assert len(list((scratch / "asked" / "memory").glob("step-*-rank-0.pickle"))) == 1
    (scratch / "blocked").mkdir()
    (scratch / "blocked" / "memory").write_text("a file\n")
    output = train(sluice, scratch, ["output.dir=blocked"])
    assert output.count("output.memory_snapshot: cannot create blocked/memory") >= 1, output


def main(sluice, viz=None):
    viewer = None
    if viz is not None and pathlib.Path(viz).exists():
        spec = importlib.util.spec_from_file_location("memory_viz", viz)
        viewer = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(viewer)
    with tempfile.TemporaryDirectory() as folder:
        scratch = pathlib.Path(folder)
        (scratch / "text.txt").write_text("the quick brown fox jumps over the lazy dog\n" * 400)
        (scratch / "c.yaml").write_text(CONFIG)
        check_run(sluice, scratch, "on the device", [], viewer)
        check_run(sluice, scratch, "off the device", OFF_DEVICE, viewer)
        check_request(sluice, scratch)


if __name__ == "__main__":
    main(*sys.argv[1:])
