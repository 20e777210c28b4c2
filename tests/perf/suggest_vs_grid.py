"""Is the first suggestion of `sluice plan --suggest` the fastest?  A grid small enough to run, every point of it measured.

    python tests/perf/suggest_vs_grid.py                      # measures rates, then all of the grid, twice
    python tests/perf/suggest_vs_grid.py --rates rates.json --budget 110MiB

The grid is stage x recomputation x states x micro-batch x order of one model under a device budget that leaves out the
simplest of it.  Points that do not fit are left out by the plan, as `train` would.  The suggestion is run like the others;
it is right where no point that fits is faster by more than --tolerance.  Exit codes: 0; 1 where one is, or a run fails;
2 usage.  Run it on a machine with nothing else to do.
"""

import argparse
import itertools
import json
import os
import pathlib
import sys
import tempfile

from plan_vs_run import GPT2, ROOT, Failed, environment, load, measured, run, settings_of, write_base

RANKS = 2
GLOBAL_BATCH = 16
FIXED = GPT2 | {"model.vocab": 8192, "train.global_batch": GLOBAL_BATCH}
GRID = {
    "zero.stage": (0, 1, 2, 3),
    "recompute.mode": ("none", "full"),
    "offload.optimizer": ("device", "nvme"),
    "train.micro_batch": (2, 8),
}
ORDERS = ("micro", "layer")  # where there is more than one micro-batch


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sluice", type=pathlib.Path, default=ROOT / "sluice", help="the program")
    parser.add_argument("--rates", type=pathlib.Path, help="a rates file; default: measured now")
    parser.add_argument("--budget", default="96MiB", help="memory.device; default: 96MiB")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=8, help="of each run; the first three are not timed")
    parser.add_argument("--most", type=int, default=24, help="points that run: those the plan finds fastest")
    parser.add_argument("--tolerance", type=float, default=0.05)
    parser.add_argument("--work", type=pathlib.Path, help="a folder on the disk to offload to; default: a temporary one")
    args = parser.parse_args()
    if args.steps < 4 or args.rounds < 1 or args.most < 1:
        parser.error("--steps of at least 4, --rounds and --most of at least 1")
    if not os.access(args.sluice, os.X_OK):
        parser.error(f"--sluice {args.sluice}: no such program; build it, ./sluice at the root does")
    return args


def grid():
    for values in itertools.product(*GRID.values()):
        point = dict(zip(GRID, values))
        several = GLOBAL_BATCH > RANKS * point["train.micro_batch"]
        for order in ORDERS if several else ORDERS[:1]:
            yield point | {"train.accumulation_order": order}


def plan(args, env, config, settings, *options):
    return json.loads(run([args.sluice, "plan", config, "--json", *options, *settings], env, accepted=(0, 3)))


def suggestion(args, env, config, folder):
    """With a place for NVMe, so that it may be suggested."""
    base = FIXED | {"memory.device": args.budget}
    answer = plan(args, env, config, settings_of(RANKS, base, folder), "--suggest")
    if not answer["suggestions"] or not answer["suggestions"][0]["fits"]:
        raise Failed(f"nothing fits {args.budget}: give a larger --budget")
    changes = answer["suggestions"][0]["set"]
    return base | {key: value for key, value in changes.items() if key != "offload.nvme_path"}


def points_that_fit(args, env, config, folder):
    points = []
    for point in grid():
        settings = settings_of(RANKS, FIXED | point | {"memory.device": args.budget}, folder)
        answer = plan(args, env, config, settings)
        if answer["fits"]:
            points.append((answer["step_ms"], " ".join(f"{k.split('.')[1]}={v}" for k, v in point.items()), settings))
    points.sort(key=lambda p: p[0])
    print(f"{len(points)} of {len(list(grid()))} points fit {args.budget}")
    return points[: args.most]


def check(args, folder):
    (folder / "swap").mkdir()
    config = write_base(folder)
    rates = args.rates.resolve() if args.rates else folder / "rates.json"
    env = environment(rates)
    if not args.rates:
        run([args.sluice, "doctor", "--quick", "--nvme-path", folder, "--out", rates], env)
    first = settings_of(RANKS, suggestion(args, env, config, folder), folder)
    predicted = plan(args, env, config, first)["step_ms"]
    contenders = [(predicted, "suggested", first), *points_that_fit(args, env, config, folder)]
    best = [float("inf")] * len(contenders)
    for number in range(args.rounds):
        for at, (_, _, settings) in enumerate(contenders):
            step = measured(args, env, config, settings, folder / f"run-{number}-{at}")["step_ms"]
            best[at] = min(best[at], step)
    for (step_ms, name, _), ms in sorted(zip(contenders, best), key=lambda row: row[1]):
        print(f"{name:70s} plan {step_ms:8.1f} ms  run {ms:8.1f} ms")
    print("suggested: " + " ".join(str(part) for part in first if part != "--set"))
    return best[0] / min(best) - 1


def main():
    args = arguments()
    print(f"load average at the start: {load()}")
    with tempfile.TemporaryDirectory(prefix="sluice-suggest-", dir=args.work) as folder:
        try:
            behind = check(args, pathlib.Path(folder))
        except Failed as failed:
            print(failed, file=sys.stderr)
            return 1
    print(f"the suggestion is {100 * behind:.1f} % behind the fastest; load average at the end: {load()}")
    return 0 if behind <= args.tolerance else 1


if __name__ == "__main__":
    sys.exit(main())
