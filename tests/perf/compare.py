"""Sluice beside DeepSpeed or FSDP2: the same model, weights, tokens and updates, run in turn, and the losses must agree.

    python tests/perf/compare.py                                  # the GPT-2 of configs/bench, fp32, ZeRO 0-3
    python tests/perf/compare.py --shape llama-50m --dtype bf16 --stage 1 3 --json result.json
    python tests/perf/compare.py --rounds 1 --steps 20            # losses over a longer stretch; the times say less
    python tests/perf/compare.py --peer fsdp                      # PyTorch's FSDP2, ZeRO 2 and 3

For each stage and type of a shape it starts sluice, the peer, sluice, the peer, ... (--rounds of each), every run afresh
and for --steps steps, of which the first two are not timed.  Both sides have the ranks and threads of the configuration
(2 x 1) and the same CPUs (--cpus; default: the first two).  Peak resident memory is VmHWM of rank 0, read from outside,
alike for both.  Whatever is in the environment (SLUICE_MKL_BY_VENDOR, ONEDNN_MAX_CPU_ISA) holds for the runs.
Exit codes: 0; 1 where losses differ by more than the tolerance or a run fails; 2 usage.

Run it with the Python that has torch, transformers 4.x, and for DeepSpeed deepspeed and ninja, on a machine with nothing else to do.
"""

import argparse
import itertools
import json
import math
import os
import pathlib
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

from peer_work import WARMUP_STEPS, cpu_model

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
PEERS = {"deepspeed": ("DeepSpeed", range(4)), "fsdp": ("FSDP2", (2, 3))}  # name in the table, stages
TOLERANCE = 1e-3  # of a loss; in bf16 the two round in different places, and keep within it for some steps


class Failed(Exception):
    """A run that did not end well."""


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--peer", choices=PEERS, default="deepspeed")
    parser.add_argument("--shape", nargs="+", default=["gpt2-45m"], help="names of configs/bench; gpt2-45m llama-50m")
    parser.add_argument("--dtype", nargs="+", choices=("fp32", "bf16"), default=["fp32"])
    parser.add_argument("--stage", nargs="+", type=int, choices=range(4), help="default: all that the peer has")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=5, help=f"of each run; the first {WARMUP_STEPS} are not timed")
    parser.add_argument("--tolerance", type=float, default=TOLERANCE, help=f"of a loss; default: {TOLERANCE:g}")
    parser.add_argument("--sluice", type=pathlib.Path, default=ROOT / "sluice", help="the program")
    parser.add_argument("--cpus", help="comma-separated; both sides run on these alone; default: the first two")
    parser.add_argument("--timeout", type=float, default=900, help="seconds of one run")
    parser.add_argument("--json", type=pathlib.Path, help="also write every step of every run")
    parser.add_argument("--work", type=pathlib.Path, help="keep the runs in this new folder")
    args = parser.parse_args()
    name, stages = PEERS[args.peer]
    args.stage = args.stage or list(stages)
    if not set(args.stage) <= set(stages):
        parser.error(f"--stage: {name} has {' '.join(map(str, stages))}")
    if args.steps <= WARMUP_STEPS or args.rounds < 1:
        parser.error(f"--steps of at least {WARMUP_STEPS + 1} and --rounds of at least 1")
    for shape in args.shape:
        if not (ROOT / f"configs/bench/{shape}.yaml").exists():
            there = " ".join(sorted(path.stem for path in ROOT.glob("configs/bench/*.yaml")))
            parser.error(f"--shape {shape}: configs/bench has {there}")
    if not os.access(args.sluice, os.X_OK):
        parser.error(f"--sluice {args.sluice}: no such program; build it, ./sluice at the root does")
    if args.work is not None and args.work.exists():
        parser.error(f"--work {args.work} exists; name a new folder")
    return args


# ---- running ----


class RankZero(threading.Thread):
    """The peak resident memory of rank 0 among the descendants of a process, read five times a second."""

    def __init__(self, ancestor):
        super().__init__(daemon=True)
        self.ancestor = ancestor
        self.peak_bytes = 0
        self.over = threading.Event()

    def run(self):
        rank_zero = None
        while not self.over.wait(0.2):
            rank_zero = rank_zero or self.find(self.ancestor)
            if rank_zero is not None:
                self.peak_bytes = max(self.peak_bytes, self.high_water(rank_zero))

    def find(self, parent):
        """The first descendant with RANK=0: what it starts itself (a compiler) inherits the variable but lies deeper."""
        try:
            threads = pathlib.Path(f"/proc/{parent}/task").iterdir()
            children = [child for thread in threads for child in (thread / "children").read_text().split()]
            for child in children:
                if b"RANK=0" in pathlib.Path(f"/proc/{child}/environ").read_bytes().split(b"\0"):
                    return child
        except OSError:
            return None  # it has just ended
        return next((found for child in children if (found := self.find(child))), None)

    @staticmethod
    def high_water(pid):
        try:
            status = pathlib.Path(f"/proc/{pid}/status").read_text(encoding="ascii")
        except OSError:
            return 0
        return next((1024 * int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:")), 0)


def end(process):
    """Both launchers end their ranks when asked to; a group that does not go in time is killed."""
    process.terminate()
    try:
        process.wait(timeout=30)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def reason(log):
    """A rank's traceback where there is one (torchrun's own report follows it), else the last lines."""
    lines = pathlib.Path(log).read_text(encoding="utf-8", errors="replace").splitlines()
    first = next((at for at, line in enumerate(lines) if "Traceback (most recent call last)" in line), len(lines) - 15)
    return "\n".join(lines[max(0, first) :][:30])


def run(command, log, args, env):
    """Returns (stdout, peak bytes of rank 0).  Ends what takes too long."""
    with open(log, "w", encoding="utf-8") as errors:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, env=env, cwd=ROOT, text=True, start_new_session=True
        )
        watch = RankZero(process.pid)
        watch.start()
        try:
            out, _ = process.communicate(timeout=args.timeout)
        except BaseException as error:
            end(process)
            if isinstance(error, subprocess.TimeoutExpired):
                raise Failed(f"{command[0]} took longer than --timeout {args.timeout:g} s; it was ended") from None
            raise
        finally:
            watch.over.set()
            watch.join()
    if process.returncode != 0:
        raise Failed(f"{' '.join(map(str, command))} ended with {process.returncode}:\n{reason(log)}")
    return out, watch.peak_bytes


def run_sluice(case, args, env, dtype, folder):
    settings = {
        "zero.stage": case["stage"],
        "train.dtype": dtype,
        "train.steps": args.steps,
        "train.log_every": 1,
        "data.cache_dir": args.work / "tokens",
        "output.dir": folder,
    }
    command = [args.sluice, "train", f"configs/bench/{case['shape']}.yaml"]
    for key, value in settings.items():
        command += ["--set", f"{key}={value}"]
    _, peak = run(command, folder.with_suffix(".log"), args, env)
    lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    steps = [json.loads(line) for line in lines]
    if len(steps) != args.steps:
        raise Failed(f"{folder}/metrics.jsonl has {len(steps)} steps, expected {args.steps}")
    return {
        "loss": [math.nan if step["loss"] is None else step["loss"] for step in steps],
        "grad_norm": [step["grad_norm"] for step in steps],
        "step_ms": [step["step_ms"] for step in steps],
        "tokens_per_step": steps[0]["tokens"],
        "peak_rss_bytes": peak,
    }


def run_peer(case, args, env, folder):
    """On the configuration that the run of sluice left in `folder`."""
    weights = args.work / f"{case['shape']}.safetensors"
    command = [sys.executable, "-B", HERE / f"peer_{args.peer}.py", folder, "--weights", weights]
    out, peak = run(command, folder.with_suffix(".peer.log"), args, env)
    result = json.loads(out.splitlines()[-1])
    result["peak_rss_bytes"] = peak
    return result


def environment(args):
    """Of both sides: no rank of somebody else's, and a oneDNN that keeps to what the machine grants."""
    env = {key: value for key, value in os.environ.items() if key not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}
    if "bf16" in args.dtype and "ONEDNN_MAX_CPU_ISA" not in env:
        trial = "import torch; a = torch.ones(256, 256, dtype=torch.bfloat16); a @ a"
        if subprocess.run([sys.executable, "-c", trial], env=env, check=False, capture_output=True).returncode < 0:
            env["ONEDNN_MAX_CPU_ISA"] = "AVX512_CORE_BF16"
            print("oneDNN's bf16 product dies here: ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16", file=sys.stderr)
    return env


# ---- comparing ----


def largest_distance(losses, others):
    return max(abs(a - b) for a, b in zip(losses, others))


def disagreement(ours, theirs, args):
    """What is wrong with the losses, or None."""
    for step, (a, b) in enumerate(zip(ours["loss"], theirs["loss"]), start=1):
        if not abs(a - b) <= args.tolerance:  # a NaN is wrong too
            return (
                f"the losses differ by {abs(a - b):.2g} at step {step} (sluice {a:.6f}, {args.peer} {b:.6f}), more than "
                f"{args.tolerance:g}: the two do not do the same work, and their times say nothing"
            )
    return None


def timed(runs):
    return [ms for each in runs for ms in each["step_ms"][WARMUP_STEPS:]]


def summary(runs):
    times = timed(runs)
    median = statistics.median(times)
    return {
        "step_ms_median": round(median, 1),
        "step_ms_mad": round(statistics.median(abs(ms - median) for ms in times), 1),
        "tokens_per_s": round(1000 * runs[0]["tokens_per_step"] / median, 1),
        "peak_rss_bytes": max(each["peak_rss_bytes"] for each in runs),
    }


def compare(case, args, env):
    ours, theirs, ratios, wrong = [], [], [], None
    for number in range(1, args.rounds + 1):
        print(f"{case['name']}: round {number} of {args.rounds}", file=sys.stderr, flush=True)
        folder = case["dir"] / f"round-{number}"
        ours.append(run_sluice(case, args, env, case["dtype"], folder))
        theirs.append(run_peer(case, args, env, folder) | {"tokens_per_step": ours[-1]["tokens_per_step"]})
        ratios.append(statistics.median(timed(theirs[-1:])) / statistics.median(timed(ours[-1:])))
        if wrong := disagreement(ours[-1], theirs[-1], args):
            break
    from_fp32 = None
    if case["dtype"] != "fp32":
        exact = run_sluice(case, args, env, "fp32", case["dir"] / "as-fp32")["loss"]
        sides = {"sluice": ours, args.peer: theirs}
        from_fp32 = {side: largest_distance(runs[0]["loss"], exact) for side, runs in sides.items()}
    mine, peers = summary(ours), summary(theirs)
    return {
        "shape": case["shape"],
        "peer": args.peer,
        "dtype": case["dtype"],
        "stage": case["stage"],
        "sluice": mine | {"runs": ours},
        args.peer: peers | {"runs": theirs},
        "tokens_per_s_ratio": round(peers["step_ms_median"] / mine["step_ms_median"], 3),
        "tokens_per_s_ratio_of_rounds": [round(ratio, 3) for ratio in ratios],
        "peak_rss_ratio": round(mine["peak_rss_bytes"] / peers["peak_rss_bytes"], 3) if peers["peak_rss_bytes"] else None,
        "max_loss_difference": max(largest_distance(a["loss"], b["loss"]) for a, b in zip(ours, theirs)),
        "max_loss_difference_from_fp32": from_fp32,
        "wrong": wrong,
    }


HEADER = """\
| shape | dtype | ZeRO | Sluice, ms | {peer}, ms | tokens/s, ratio | Sluice peak | {peer} peak | ratio | losses |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"""


def row(result):
    peer = result["peer"]
    a, b = result["sluice"], result[peer]
    rounds = result["tokens_per_s_ratio_of_rounds"]
    distances = f"{result['max_loss_difference']:.1e}"
    if exact := result["max_loss_difference_from_fp32"]:
        distances += f" (from fp32: {exact['sluice']:.1e}, {exact[peer]:.1e})"
    cells = [
        result["shape"], result["dtype"], str(result["stage"]),
        *(f"{side['step_ms_median']:.0f} ± {side['step_ms_mad']:.0f}" for side in (a, b)),
        f"**{result['tokens_per_s_ratio']:.2f}** ({min(rounds):.2f} - {max(rounds):.2f})",
        *(f"{side['peak_rss_bytes'] / 1e9:.2f} GB" for side in (a, b)),
        "unknown" if result["peak_rss_ratio"] is None else f"**{result['peak_rss_ratio']:.2f}**",
        distances,
    ]  # fmt: skip
    return "| " + " | ".join(cells) + " |"


def write_json(results, args, env):
    about = {"cpu": cpu_model(), "cpus": sorted(os.sched_getaffinity(0))}
    about |= {"rounds": args.rounds, "steps": args.steps, "warmup_steps": WARMUP_STEPS}
    about |= {name: env.get(name) for name in ("SLUICE_MKL_BY_VENDOR", "ONEDNN_MAX_CPU_ISA")}
    args.json.write_text(json.dumps({"about": about, "results": results}, indent=1) + "\n", encoding="utf-8")


def compare_all(args, env):
    """Prints a row for each stage and type; returns how many failed, which does not keep the others from running."""
    results, failures = [], 0
    print(HEADER.format(peer=PEERS[args.peer][0]), flush=True)
    for shape, dtype, stage in itertools.product(args.shape, args.dtype, args.stage):
        name = f"{shape} {dtype} ZeRO-{stage}"
        folder = args.work / name.replace(" ", "-")
        try:
            folder.mkdir()
            case = {"name": name, "shape": shape, "dtype": dtype, "stage": stage, "dir": folder}
            results.append(compare(case, args, env))
            print(row(results[-1]), flush=True)
            if args.json is not None:
                write_json(results, args, env)
            if results[-1]["wrong"]:
                raise Failed(results[-1]["wrong"])
        except Failed as failure:
            failures += 1
            print(f"compare.py: {name}: {failure}", file=sys.stderr, flush=True)
    return failures


def main():
    args = arguments()
    available = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, [int(cpu) for cpu in args.cpus.split(",")] if args.cpus else available[:2])
    keep = args.work is not None
    args.work = (args.work if keep else pathlib.Path(tempfile.mkdtemp(prefix="sluice-compare-"))).resolve()
    args.work.mkdir(parents=True, exist_ok=True)
    args.sluice = args.sluice.resolve()
    start = time.monotonic()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that run() ends what it started
    try:
        failures = compare_all(args, environment(args))
    finally:
        if not keep:
            shutil.rmtree(args.work, ignore_errors=True)
    print(f"{(time.monotonic() - start) / 60:.1f} minutes, {failures} failed", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
