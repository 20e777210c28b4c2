"""Predicted and measured step times, side by side: `sluice plan` and a short `sluice train` of the same configurations.

    python tests/perf/plan_vs_run.py                        # measures rates, then plans and runs every configuration
    python tests/perf/plan_vs_run.py --rates rates.json     # with rates that `sluice doctor --out` wrote before
    python tests/perf/plan_vs_run.py --only nvme --rounds 1 --json result.json

Every round runs each configuration once, so that a neighbour's load falls on all of them; a configuration's time is the
least of its rounds' medians over the steps after warm-up.  Prints a line a configuration and the worst error; exit codes:
0; 1 where an error is above --tolerance or a run fails; 2 usage.  Run it on a machine with nothing else to do.
"""

import argparse
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
WARMUP_STEPS = 3
LANES = ("compute", "comm", "host", "d2h", "h2d", "disk")

GPT2 = {"model.type": "gpt2", "model.layers": 4, "model.hidden": 256, "model.heads": 4, "model.seq": 256}
GPT2_WIDE = {"model.type": "gpt2", "model.layers": 4, "model.hidden": 512, "model.heads": 8, "model.seq": 256}
LLAMA = {"model.type": "llama", "model.layers": 4, "model.hidden": 384, "model.heads": 6, "model.kv_heads": 2}
LLAMA |= {"model.seq": 512, "model.vocab": 8192, "model.tie_embeddings": "false"}
VOCAB = {"model.vocab": 32000}
STATES_NVME = {"offload.optimizer": "nvme"}
ALL_NVME = {"zero.stage": 3, "offload.optimizer": "nvme", "offload.parameters": "nvme", "offload.gradients": "nvme"}

# Name, ranks, what differs from BASE.
CASES = [
    ("gpt2 3M, 1 rank", 1, GPT2 | {"train.micro_batch": 4}),
    ("gpt2 3M, 2 ranks, stage 0", 2, GPT2 | {"zero.stage": 0, "train.micro_batch": 4}),
    ("gpt2 29M vocab 32000, 2 ranks, stage 1", 2, GPT2_WIDE | VOCAB | {"train.micro_batch": 4}),
    ("gpt2 29M, 2 ranks, stage 2, accumulation 4", 2, GPT2_WIDE | VOCAB | {"zero.stage": 2, "train.micro_batch": 2, "train.global_batch": 16}),
    ("gpt2 29M, 2 ranks, stage 3, recompute", 2, GPT2_WIDE | VOCAB | {"zero.stage": 3, "recompute.mode": "full", "train.micro_batch": 4}),
    ("gpt2 wide, bf16, 1 rank", 1, GPT2_WIDE | {"train.dtype": "bf16", "train.micro_batch": 4}),
    ("gpt2 wide, bf16, 2 ranks, stage 3, layer order", 2, GPT2_WIDE | {"train.dtype": "bf16", "zero.stage": 3, "train.micro_batch": 2, "train.global_batch": 16, "train.accumulation_order": "layer"}),
    ("llama, 1 rank, selective", 1, LLAMA | {"recompute.mode": "selective", "train.micro_batch": 4}),
    ("llama, 2 ranks, stage 2", 2, LLAMA | {"zero.stage": 2, "train.micro_batch": 2}),
    ("llama, bf16, 2 ranks, stage 1, recompute", 2, LLAMA | {"train.dtype": "bf16", "recompute.mode": "full", "train.micro_batch": 2}),
    ("gpt2 29M, 1 rank, states host", 1, GPT2_WIDE | VOCAB | {"offload.optimizer": "host", "train.micro_batch": 4}),
    ("gpt2 29M, 2 ranks, states, gradients host", 2, GPT2_WIDE | VOCAB | {"zero.stage": 2, "offload.optimizer": "host", "offload.gradients": "host", "train.micro_batch": 4}),
    ("gpt2 29M, 1 rank, states nvme", 1, GPT2_WIDE | VOCAB | STATES_NVME | {"train.micro_batch": 4}),
    ("gpt2 29M, 2 ranks, states nvme", 2, GPT2_WIDE | VOCAB | STATES_NVME | {"train.micro_batch": 4}),
    ("llama, 2 ranks, all nvme, recompute", 2, LLAMA | ALL_NVME | {"recompute.mode": "full", "train.micro_batch": 2}),
    ("llama, 2 ranks, all nvme, layer order", 2, LLAMA | ALL_NVME | {"train.micro_batch": 1, "train.global_batch": 8, "train.accumulation_order": "layer"}),
    ("gpt2 3M, 1 rank, activations nvme", 1, GPT2 | {"offload.activations": "nvme", "train.micro_batch": 8}),
    ("gpt2 3M, 2 ranks, activations host, recompute", 2, GPT2 | {"offload.activations": "host", "recompute.mode": "full", "train.micro_batch": 8}),
]


class Failed(Exception):
    """A command that did not end well."""


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sluice", type=pathlib.Path, default=ROOT / "sluice", help="the program")
    parser.add_argument("--rates", type=pathlib.Path, help="a rates file; default: measured now")
    parser.add_argument("--only", default="", help="configurations whose name has this in it")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=11, help=f"of each run; the first {WARMUP_STEPS} are not timed")
    parser.add_argument("--tolerance", type=float, default=0.15, help="of a step's time")
    parser.add_argument("--work", type=pathlib.Path, help="a folder on the disk to offload to; default: a temporary one")
    parser.add_argument("--lanes", action="store_true", help="also print what the plan says of each lane")
    parser.add_argument("--json", type=pathlib.Path, help="also write every number")
    args = parser.parse_args()
    if args.steps <= WARMUP_STEPS or args.rounds < 1:
        parser.error(f"--steps of at least {WARMUP_STEPS + 1} and --rounds of at least 1")
    if not os.access(args.sluice, os.X_OK):
        parser.error(f"--sluice {args.sluice}: no such program; build it, ./sluice at the root does")
    return args


def run(command, env, accepted=(0,)):
    done = subprocess.run([str(c) for c in command], env=env, cwd=ROOT, capture_output=True, text=True, check=False, timeout=600)
    if done.returncode not in accepted:
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-15:])
        raise Failed(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{tail}")
    return done.stdout


def write_base(folder):
    """Text of a fixed seed, and the configuration that all runs begin from."""
    letters = random.Random(1)
    text = "".join(letters.choice("abcdefghijklmnopqrstuvwxyz  \n") for _ in range(1 << 21))
    (folder / "text.txt").write_text(text, encoding="ascii")
    config = folder / "base.yaml"
    config.write_text(
        f'data: {{text: ["{folder}/text.txt"], split: [1, 0], cache_dir: {folder}/tokens}}\n'
        "train: {eval_steps: 0, log_every: 1000}\n"
        "optimizer: {lr: 1.0e-4}\n"
        "schedule: {type: constant}\n"
        "zero: {stage: 1}\n"
        "checkpoint: {at_end: false}\n",
        encoding="ascii",
    )
    return config


def settings_of(ranks, changes, folder):
    settings = {"launch.nproc": ranks} | changes
    if "nvme" in settings.values():
        settings["offload.nvme_path"] = f"[{folder}/swap]"
    return [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]


def predicted(args, env, config, settings):
    """Exit code 3 is a plan that does not fit: its time is still a prediction."""
    plan = json.loads(run([args.sluice, "plan", config, "--json", *settings], env, accepted=(0, 3)))
    return {"step_ms": plan["step_ms"], "limiting": plan["limiting_lane"], "lanes": plan["lanes"]}


def measured(args, env, config, settings, out):
    run([args.sluice, "train", config, *settings, "--set", f"train.steps={args.steps}", "--set", f"output.dir={out}"], env)
    lines = (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    steps = [json.loads(line) for line in lines]
    if len(steps) != args.steps:
        raise Failed(f"{out}/metrics.jsonl has {len(steps)} steps, expected {args.steps}")
    timed = steps[WARMUP_STEPS:]
    timers = {key: statistics.median(step["timers_ms"][key] for step in timed) for key in timed[0]["timers_ms"]}
    return {"step_ms": statistics.median(step["step_ms"] for step in timed), "timers": timers}


def environment(rates):
    env = {key: value for key, value in os.environ.items() if key not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}
    return env | {"SLUICE_RATES": str(rates)}


def load():
    return pathlib.Path("/proc/loadavg").read_text(encoding="ascii").split()[0]


def compare(args, folder):
    (folder / "swap").mkdir(exist_ok=True)
    config = write_base(folder)
    rates = args.rates.resolve() if args.rates else folder / "rates.json"
    env = environment(rates)
    if not args.rates:
        run([args.sluice, "doctor", "--quick", "--nvme-path", folder, "--out", rates], env)
    cases = [(name, settings_of(ranks, changes, folder)) for name, ranks, changes in CASES if args.only in name]
    runs = {name: [] for name, _ in cases}
    for number in range(args.rounds):
        for at, (name, settings) in enumerate(cases):
            out = folder / f"run-{number}-{at}"
            runs[name].append(measured(args, env, config, settings, out) | {"load": load()})
    results = []
    for name, settings in cases:
        best = min(runs[name], key=lambda r: r["step_ms"])
        plan = predicted(args, env, config, settings)
        results.append({"name": name, "plan": plan, "best": best, "runs": runs[name], "error": plan["step_ms"] / best["step_ms"] - 1})
    return results


def show(result, lanes):
    plan, best = result["plan"], result["best"]
    times = " ".join(f"{r['step_ms']:.0f}" for r in result["runs"])
    print(f"{result['name']:50s} {plan['step_ms']:8.1f} {best['step_ms']:8.1f} {100 * result['error']:+7.1f} %  {plan['limiting']:8s} {times}")
    if lanes:
        print("    plan  " + "  ".join(f"{lane} {plan['lanes'][lane]['busy_ms']:.1f}" for lane in LANES if lane in plan["lanes"]))
        print("    run   " + "  ".join(f"{name} {ms:.1f}" for name, ms in best["timers"].items()))


def main():
    args = arguments()
    print(f"load average at the start: {load()}")
    with tempfile.TemporaryDirectory(prefix="sluice-plan-", dir=args.work) as folder:
        try:
            results = compare(args, pathlib.Path(folder))
        except Failed as failed:
            print(failed, file=sys.stderr)
            return 1
    print(f"{'configuration':50s} {'plan ms':>8s} {'run ms':>8s} {'error':>9s}  {'limit':8s} rounds")
    for result in results:
        show(result, args.lanes)
    worst = max(results, key=lambda r: abs(r["error"]))
    within = sum(abs(r["error"]) <= args.tolerance for r in results)
    print(f"{within} of {len(results)} within {100 * args.tolerance:.0f} %; worst {100 * worst['error']:+.1f} % ({worst['name']}); load {load()}")
    if args.json:
        args.json.write_text(json.dumps(results, indent=1), encoding="utf-8")
    return 0 if within == len(results) else 1


if __name__ == "__main__":
    sys.exit(main())
