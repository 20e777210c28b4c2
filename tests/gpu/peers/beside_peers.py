#!/usr/bin/env python3
"""Sluice beside PyTorch and DeepSpeed on the null GPU: device memory, launches, host waits, time to issue a step.

Usage: beside_peers.py --python PYTHON [--only TEXT] [--sluice PROGRAM] [--libraries FOLDER]

PYTHON has torch 2.11, transformers 5.24 and deepspeed (docs/benchmarks.md has the line of pip).  Prints a Markdown table; each
group of rows is one model and micro-batch.  Memory, launches and waits are exact.  Times are the host's alone, the median of the
later steps: compare them within one run of this script.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import typing

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import ceilings_test  # noqa: E402
import null_gpu  # noqa: E402
import training  # noqa: E402

STEPS = (3, 7)
RECOMPUTED = {"recompute.mode": "full"}


class Row(typing.NamedTuple):
    """A peer and the mode that it and Sluice train in."""
    who: str
    model: str  # of peer_models.MODELS
    stage: int = 0
    on_host: bool = False  # the optimizer
    recomputed: bool = False

    def mode(self):
        parts = [f"ZeRO {self.stage}"] + ["optimizer on the host"] * self.on_host + ["recomputed"] * self.recomputed
        return ", ".join(parts)


# What people train: Transformers' models.  Plain PyTorch modules are the leaner peer.
TORCH = [Row("torch", "transformers"), Row("torch", "plain")]
DEEPSPEED = "deepspeed", "transformers"
# Model, micro-batch, rows.
TABLE = [
    ("gpt2-345m", 8, [*TORCH, Row(*DEEPSPEED, 1), Row(*DEEPSPEED, 2), Row(*DEEPSPEED, 3), Row(*DEEPSPEED, 2, True),
                      Row(*DEEPSPEED, 3, True), Row(*DEEPSPEED, 1, False, True)]),
    ("gpt2-1558m", 4, [*TORCH, Row(*DEEPSPEED, 1)]),
    ("gpt2-1558m", 8, [Row(*DEEPSPEED, 1, False, True), Row(*DEEPSPEED, 3, False, True)]),
    ("llama-1.24b", 8, [*[row._replace(recomputed=True) for row in TORCH], Row(*DEEPSPEED, 1, False, True),
                        Row(*DEEPSPEED, 3, False, True)]),
]


def figures(reports, seconds):
    """A step's figures from the reports of the short and the long run, and the long run's times."""
    few, many = map(ceilings_test.totals, reports)
    per_step = {key: (many[key] - few[key]) / (STEPS[1] - STEPS[0]) for key in ("launches", "graph_launches", "host_waits")}
    peak = max(report["device_peak_bytes"] for report in reports)
    return {"device": peak, "milliseconds": 1e3 * statistics.median(seconds[2:]), **per_step}


def peer(args, model, micro_batch, row):
    reports, seconds = [], []
    for steps in STEPS:
        with tempfile.TemporaryDirectory(prefix="sluice-peer-") as folder:
            command = [args.python, HERE / "peer_step.py", "--peer", row.who, "--model", row.model, "--shape", json.dumps(model),
                       "--micro-batch", micro_batch, "--steps", steps, "--stage", row.stage, "--no-numbers"]
            command += ["--optimizer-on-host"] * row.on_host + ["--recompute"] * row.recomputed
            done = subprocess.run(list(map(str, command)), env=null_gpu.environment(args.libraries, report=folder), check=False,
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            found = null_gpu.reports(folder)
        if done.returncode != 0 or not found:
            raise ceilings_test.RunFailed(training.tail(done.stdout, 25))
        reports.append(found[0])
        seconds = json.loads(next(line for line in reversed(done.stdout.splitlines()) if line.startswith("{")))["seconds"]
    return figures(reports, seconds)


def sluice(place, model, micro_batch, row):
    settings = {"train.dtype": "bf16", "train.micro_batch": micro_batch, "zero.stage": row.stage}
    settings |= RECOMPUTED if row.recomputed else {}
    settings |= {"offload.optimizer": "host"} if row.on_host else {}
    answers = []
    for steps in STEPS:
        answer = place.train(f"peers-{steps}", model, settings | {"train.steps": steps})
        if answer.code != 0:
            raise ceilings_test.RunFailed(training.tail(answer.text, 25))
        answers.append(answer)
    return figures([answer.reports[0] for answer in answers], [step["step_ms"] / 1e3 for step in answers[-1].steps])


def line(who, row, figure, peer_bytes=None):
    share = f"{figure['device'] / peer_bytes:.2f}" if peer_bytes else ""
    launches, graphs, ms = f"{figure['launches']:.0f}", figure["graph_launches"], figure["milliseconds"]
    launches += " and a graph" if graphs == 1 else f" and {graphs:.0f} graphs" if graphs else ""
    return (f"| {who} | {row.mode()} | {figure['device'] / 2**30:.2f} | {share} | {launches} | {figure['host_waits']:.0f} "
            f"| {ms:.{1 if ms < 10 else 0}f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    training.add_arguments(parser)
    # Not resolved: a virtual environment's interpreter is a link.
    parser.add_argument("--python", required=True, help="an interpreter with torch, transformers and deepspeed")
    parser.add_argument("--only", default="", help="models whose name has this in it")
    args = training.parse(parser)
    models = json.loads(ceilings_test.TABLE.read_text(encoding="ascii"))["models"]
    failed = 0
    with tempfile.TemporaryDirectory(prefix="sluice-peers-") as folder:
        place = training.Place(args, folder)
        for name, micro_batch, rows in TABLE:
            if args.only not in name:
                continue
            print(f"\n{name}, micro-batch {micro_batch}\n\n"
                  "| who | mode | device, GiB | share of the peer's | launches | host waits | ms to issue |\n"
                  "| --- | --- | --- | --- | --- | --- | --- |", flush=True)
            for row in rows:
                try:
                    theirs = peer(args, models[name], micro_batch, row)
                    print(line(f"{row.who}, {row.model}", row, theirs), flush=True)
                    ours = sluice(place, models[name], micro_batch, row)
                    print(line("sluice", row, ours, theirs["device"]), flush=True)
                except ceilings_test.RunFailed as error:
                    failed += 1
                    print(f"{name} {row}: failed\n{error}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
