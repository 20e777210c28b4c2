#!/usr/bin/env python3
"""Sluice beside PyTorch, FSDP2 and DeepSpeed on the null GPU: device memory, launches, host waits, time to issue a step.

Usage: beside_peers.py --python PYTHON [--only TEXT] [--keep FILE] [--sluice PROGRAM] [--libraries FOLDER]

PYTHON has torch 2.11, transformers 5.24 and deepspeed (docs/benchmarks-gpu.md has the line of pip).  Prints a Markdown table; the rows of
a mode end with Sluice's.  Memory, launches and waits are exact; of several ranks they are the largest.  Times are the host's alone,
the median of the later steps: compare them within one run of this script.  FILE gets each row's figures; a second run of the script
takes them from FILE.
"""
import argparse
import json
import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import typing

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import ceilings_test  # noqa: E402
import null_gpu  # noqa: E402
import training  # noqa: E402

STEPS = (3, 5)
SECONDS = 600  # most of one run
COUNTED = ("launches", "graph_launches", "host_waits")


class Mode(typing.NamedTuple):
    """What a peer and Sluice share."""
    stage: int = 0
    on_host: str = ""  # "optimizer", or "states": gradients and weights too
    recomputed: bool = False
    ranks: int = 1
    clips: bool = True
    narrow: bool = False  # gradients in bf16, as DeepSpeed always keeps them; Sluice otherwise has them in fp32

    def __str__(self):
        parts = ["two ranks"] * (self.ranks == 2) + [f"ZeRO {self.stage}"]
        return ", ".join(parts + [f"{self.on_host} on host"] * bool(self.on_host) + ["recomputed"] * self.recomputed
                         + ["no clip"] * (not self.clips) + ["bf16 gradients"] * self.narrow)

    def settings(self):
        """Of Sluice."""
        tiers = {"": (), "optimizer": ("optimizer",), "states": ("optimizer", "gradients", "parameters")}[self.on_host]
        if self.stage < 3:  # the 16-bit weights stay on the card, as with FSDP2 from a forward to its backward
            tiers = [state for state in tiers if state != "parameters"]
        settings = {"zero.stage": self.stage, "launch.nproc": self.ranks} | {f"offload.{state}": "host" for state in tiers}
        settings |= ({"recompute.mode": "full"} if self.recomputed else {}) | ({} if self.clips else {"train.clip": 0})
        return settings | ({"offload.gradients_dtype": "bf16"} if self.narrow else {})


# Name: peer and model of peer_step.py.  Many train Transformers' models; plain PyTorch modules are leaner, and leanest with a loss in chunks.
TORCH = {"PyTorch, Transformers": ("torch", "transformers"), "PyTorch, plain": ("torch", "plain"), "PyTorch, loss in chunks": ("torch", "chunked")}
LEAN = {"PyTorch, loss in chunks": ("torch", "chunked")}
FSDP = {"FSDP2, plain": ("fsdp", "plain"), "FSDP2, loss in chunks": ("fsdp", "chunked")}
CHUNKS = {"FSDP2, loss in chunks": ("fsdp", "chunked")}
DEEPSPEED = {"DeepSpeed": ("deepspeed", "transformers")}
# Model, micro-batch, the modes with their peers.  With all states on the host the larger models need more memory than most machines have.
TABLE = [
    ("gpt2-345m", 8, {Mode(0): TORCH, Mode(1): DEEPSPEED, Mode(2): DEEPSPEED | CHUNKS,
                      Mode(3): DEEPSPEED | {"FSDP2, Transformers": ("fsdp", "transformers")} | FSDP,
                      Mode(2, "optimizer"): DEEPSPEED, Mode(3, "optimizer"): DEEPSPEED, Mode(2, "states"): CHUNKS, Mode(3, "states"): CHUNKS,
                      Mode(1, "", True): DEEPSPEED, Mode(3, "", True): FSDP, Mode(1, "", True, narrow=True): DEEPSPEED, Mode(2, ranks=2): DEEPSPEED | CHUNKS,
                      Mode(3, ranks=2): DEEPSPEED | FSDP, Mode(3, "states", ranks=2): CHUNKS}),
    ("gpt2-1558m", 4, {Mode(0): TORCH, Mode(1): DEEPSPEED, Mode(3): FSDP, Mode(0, clips=False): LEAN}),
    ("gpt2-1558m", 8, {Mode(1, "", True): DEEPSPEED, Mode(2, "", True): CHUNKS, Mode(3, "", True): DEEPSPEED | FSDP,
                       Mode(1, "", True, narrow=True): DEEPSPEED, Mode(3, "", True, narrow=True): DEEPSPEED,
                       Mode(3, "", True, 2): CHUNKS, Mode(1, "", True, clips=False): DEEPSPEED,
                       Mode(3, "", True, clips=False): DEEPSPEED | CHUNKS, Mode(3, "", True, 2, False): CHUNKS}),
    ("llama-1.24b", 8, {Mode(0, "", True): TORCH, Mode(1, "", True): DEEPSPEED, Mode(2, "", True): CHUNKS,
                        Mode(3, "", True): DEEPSPEED | FSDP, Mode(1, "", True, narrow=True): DEEPSPEED,
                        Mode(3, "", True, narrow=True): DEEPSPEED, Mode(3, "", True, 2): CHUNKS, Mode(0, "", True, clips=False): LEAN,
                        Mode(1, "", True, clips=False): DEEPSPEED, Mode(3, "", True, clips=False): DEEPSPEED | CHUNKS,
                        Mode(3, "", True, 2, False): CHUNKS}),
]


def figures(short, long, seconds, allocated=None):
    """A step's figures from the reports of all ranks of the short and the long run, and the long run's times."""
    few, many = ({key: max(ceilings_test.totals(rank)[key] for rank in reports) for key in COUNTED} for reports in (short, long))
    per_step = {key: (many[key] - few[key]) / (STEPS[1] - STEPS[0]) for key in COUNTED}
    peak = max(report["device_peak_bytes"] for report in short + long)
    return {"device": peak, "allocated": allocated, "milliseconds": 1e3 * statistics.median(seconds[2:]), **per_step}


def ended(ranks):
    """The exit codes of the processes `ranks`.  Once one has failed, the others would wait for it."""
    end = time.monotonic() + SECONDS
    while any(rank.poll() is None for rank in ranks) and not any(rank.poll() for rank in ranks) and time.monotonic() < end:
        time.sleep(0.2)
    for rank in ranks:
        if rank.poll() is None:
            rank.kill()
    return [rank.wait() for rank in ranks]


def run_ranks(command, env, count):
    """What `count` ranks of torchrun's kind print, each on a card of its own.  One thread a rank, as Sluice's."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    env |= {"WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    logs = [tempfile.TemporaryFile("w+", encoding="utf-8") for _ in range(count)]
    try:
        codes = ended([subprocess.Popen(list(map(str, command)), env=env | {"RANK": str(rank), "LOCAL_RANK": str(rank)}, stdin=subprocess.DEVNULL,
                                        stdout=log, stderr=subprocess.STDOUT) for rank, log in enumerate(logs)])
        texts = []
        for log in logs:
            log.seek(0)
            texts.append(log.read())
    finally:
        for log in logs:
            log.close()
    if any(codes):
        raise ceilings_test.RunFailed("\n".join(f"rank {rank}: exit code {code}\n{training.tail(text, 25)}"
                                                for rank, (code, text) in enumerate(zip(codes, texts))))
    return texts


def peer(args, model, micro_batch, who, mode):
    reports, said = [], {}
    for steps in STEPS:
        with tempfile.TemporaryDirectory(prefix="sluice-peer-") as folder:
            command = [args.python, "-B", HERE / "peer_step.py", "--peer", who[0], "--model", who[1], "--shape", json.dumps(model),
                       "--micro-batch", micro_batch, "--steps", steps, "--stage", mode.stage, "--no-numbers"]
            command += ["--optimizer-on-host"] * bool(mode.on_host) + ["--recompute"] * mode.recomputed + ["--no-clip"] * (not mode.clips)
            texts = run_ranks(command, null_gpu.environment(args.libraries, mode.ranks, report=folder), mode.ranks)
            found = null_gpu.reports(folder)[:mode.ranks]
        if len(found) != mode.ranks or any(report["faults"] for report in found):
            raise ceilings_test.RunFailed(f"{len(found)} reports of ranks, with the faults {[report['faults'] for report in found]}")
        reports.append(found)
        said = json.loads(next(line for line in reversed(texts[0].splitlines()) if line.startswith("{")))
    return figures(*reports, said["seconds"], said["allocated"])


def sluice(place, model, micro_batch, mode):
    settings = {"train.dtype": "bf16", "train.micro_batch": micro_batch} | mode.settings()
    answers = []
    for steps in STEPS:
        answer = place.train(f"peers-{steps}", model, settings | {"train.steps": steps}, gpus=mode.ranks)
        if answer.code != 0:
            raise ceilings_test.RunFailed(training.tail(answer.text, 25))
        answers.append(answer)
    return figures(*[answer.reports for answer in answers], [step["step_ms"] / 1e3 for step in answers[-1].steps])


def gib(count):
    return f"{count / 2**30:.2f}" if count else ""


def line(first, who, figure, share=""):
    launches, graphs, ms = f"{figure['launches']:.0f}", figure["graph_launches"], figure["milliseconds"]
    launches += " and a graph" if graphs == 1 else f" and {graphs:.0f} graphs" if graphs else ""
    return (f"| {first} | {who} | {gib(figure['device'])} | {gib(figure['allocated'])} | {share} | {launches} | {figure['host_waits']:.0f} "
            f"| {ms:.{1 if ms < 10 else 0}f} |")


class Kept:
    """Figures by the row's name, in a file if one is given."""

    def __init__(self, path):
        self.path = path
        self.figures = json.loads(path.read_text(encoding="ascii")) if path and path.exists() else {}

    def get(self, name, measure):
        """A row's figures, measured where they are not kept; None where the run fails."""
        if name not in self.figures:
            try:
                self.figures[name] = measure()
            except ceilings_test.RunFailed as error:
                print(f"{name}: failed\n{error}", file=sys.stderr, flush=True)
                return None
            if self.path:
                self.path.write_text(json.dumps(self.figures, indent=1) + "\n", encoding="ascii")
        return self.figures[name]


def print_mode(kept, first, name, mode, peers, ours):
    """The rows of one mode; how many failed.  `peers` measures by name, `ours` measures Sluice."""
    of_peers = mode._replace(narrow=False)  # what they train has one form
    theirs = {who: kept.get(f"{name}, {of_peers}, {who}", measure) for who, measure in peers.items()}
    mine = kept.get(f"{name}, {mode}, Sluice", ours)
    for who, figure in theirs.items():
        if figure:
            print(line(first, who, figure, f"{mine['device'] / figure['device']:.2f}" if mine else ""), flush=True)
            first = "|".join([" "] * (first.count("|") + 1))
    if mine:
        print(line(first, "Sluice", mine), flush=True)
    return list(theirs.values()).count(None) + (mine is None)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    training.add_arguments(parser)
    # Not resolved: a virtual environment's interpreter is a link.
    parser.add_argument("--python", required=True, help="an interpreter with torch, transformers and deepspeed")
    parser.add_argument("--only", default="", help="models whose name has this in it")
    parser.add_argument("--keep", type=pathlib.Path, help="a JSON file of figures: rows that it has are not measured again")
    args = training.parse(parser)
    models = json.loads(ceilings_test.TABLE.read_text(encoding="ascii"))["models"]
    kept, failed = Kept(args.keep), 0
    with tempfile.TemporaryDirectory(prefix="sluice-peers-") as folder:
        place = training.Place(args, folder)
        print("| model, micro-batch | mode | who | device, GiB | allocated, GiB | Sluice's share | launches | host waits | ms to issue |\n"
              "| --- | --- | --- | --- | --- | --- | --- | --- | --- |", flush=True)
        for name, micro_batch, modes in TABLE:
            if args.only not in name:
                continue
            first = f"{name}, {micro_batch}"
            for mode, peers in modes.items():
                shape = models[name], micro_batch
                measures = {who: lambda what=what, mode=mode, shape=shape: peer(args, *shape, what, mode) for who, what in peers.items()}
                failed += print_mode(kept, f"{first} | {mode}", f"{name}, {micro_batch}", mode, measures,
                                     lambda mode=mode, shape=shape: sluice(place, *shape, mode))
                first = ""
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
