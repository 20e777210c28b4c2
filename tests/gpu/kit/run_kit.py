#!/usr/bin/env python3
"""Runs Sluice on a machine with a GPU: correctness first, then memory, tiers, speed.

Usage: run_kit.py [--build FOLDER] [--backend auto|nccl|gloo] [--out FOLDER] [--jobs N] [--seconds N] [STEP ... | all]

Beside a kit.tar.xz (make_kit.py) the kit runs, with the libtorch of this Python's torch; with --build a build folder of a checkout runs.
docs/gpu.md names the steps; without names the first seven run.  Each step has a log in OUT (./gpu-out); the exit code is the number of
steps that failed.  --jobs trains N runs of parity, stages, nccl and mesh side by side.  After --seconds nothing more begins, and what
runs then is ended.
"""
import argparse
import concurrent.futures
import contextlib
import functools
import importlib.util
import io
import json
import math
import pathlib
import shutil
import statistics
import subprocess
import sys
import time
import traceback

import kernel_table
import lanes
from programs import (EMULATED, LARGE, MODELS, NORMS, ON_HOST, OPTIMIZER_ON_HOST, PARITY, PATIENCE, PEER_RUNS, PEERS, PRICED, PRICED_RUNS, SPEED,
                      Failed, Kit, TooLarge, build_kernel_times, differences, free_port, host_memory, last_line)

HERE = pathlib.Path(__file__).resolve().parent
CARD_TFLOPS = 989  # dense bf16 of an H100 SXM

TINY = {"train.steps": 3 if EMULATED else 12, "train.micro_batch": 4, "train.global_batch": 8, "train.dtype": "fp32"}


def note(text):
    """A result: printed to the step's log, and shown at the end of the step."""
    print("=>", text)


@contextlib.contextmanager
def if_it_fits():
    """What a machine is too small for is noted, and is no failure."""
    try:
        yield
    except TooLarge as large:
        note(large)


def same(kit, run, oracle, tolerance):
    loss, norm = differences(kit.steps(run), kit.steps(oracle))
    note(f"{run} against {oracle}: losses differ by {loss:.1e}, norms by {norm:.1e} (limit {tolerance:.0e})")
    if loss > tolerance or norm > NORMS * tolerance:
        raise Failed(f"{run} and {oracle} differ")


def trained_and_same(kit, runs, comparisons):
    """Trains `runs` (name: function), --jobs at a time, and then compares (run, oracle, tolerance). One failure does not stop the others."""
    with concurrent.futures.ThreadPoolExecutor(kit.jobs) as pool:
        ends = {name: pool.submit(train) for name, train in runs.items()}
    failures = {name: end.exception() for name, end in ends.items() if end.exception()}
    for run, oracle, tolerance in comparisons:
        if run not in failures and oracle not in failures:
            try:
                same(kit, run, oracle, tolerance)
            except Failed as failed:
                failures[f"{run} against {oracle}"] = failed
    end_with(failures)


def end_with(failures):
    for name, failure in failures.items():
        note(f"{name} FAILED: {failure if isinstance(failure, Failed) else repr(failure)}")
    if failures:
        raise Failed(", ".join(failures))


def reserved_and_planned(kit, run):
    """Bytes of device memory at the peak of the run, and of its plan."""
    reserved, planned = max(s["memory"]["device_peak"] for s in kit.steps(run)), kit.planned(run)
    return reserved, planned, f"planned {planned / 2**30:.2f} GiB, reserved {reserved / 2**30:.2f}, {100 * (reserved / planned - 1):+.1f} %"


def speed_of(kit, run, after=3):
    """Tokens a second: the median of the steps after the third (eager, recorded, first launch), or a later one."""
    steps = kit.steps(run)[after:]
    ms, tokens, tflops = (statistics.median(s[key] for s in steps) for key in ("step_ms", "tokens_per_s", "tflops"))
    memory = reserved_and_planned(kit, run)[2] if kit.backend != "gloo" else ""
    note(f"{run}: {ms:.1f} ms, {tokens:.0f} tokens/s, {tflops:.1f} TFLOP/s, {100 * tflops / CARD_TFLOPS:.1f} % of an H100's {CARD_TFLOPS}; {memory}")
    return tokens


def priced(kit):
    """PRICED, without fp8 where the card's compute capability is below 8.9."""
    if EMULATED:  # cuDNN's attention is not computed
        return {name: settings for name, settings in PRICED.items() if name != "cudnn"}
    smi = shutil.which("nvidia-smi")
    if smi and kit.backend != "gloo":
        capability = kit.call([smi, "--query-gpu=compute_cap", "--format=csv,noheader"]).split()[0]
        if float(capability) < 8.9:
            note(f"compute capability {capability}: no fp8")
            return {name: settings for name, settings in PRICED.items() if name != "fp8"}
    return PRICED


# ---- steps ----

def step_env(kit):
    if kit.backend != "gloo":
        kit.call(["nvidia-smi"])
    for path in [kit.sluice, *kit.tests.values()]:
        if "not found" in kit.call(["ldd", path]):
            raise Failed(f"{path} lacks libraries (the log names them)")
    note("every library is found")


def step_kernels(kit):
    kit.test("cuda_kernels")
    checker = shutil.which("compute-sanitizer")
    if checker:
        kit.call([checker, "--tool", "memcheck", "--error-exitcode", "9", kit.tests["cuda_kernels"], "--gtest_brief=1"])
    note("the CPU's bits" + (", and memcheck" if checker else "; compute-sanitizer is not installed"))


def step_module(kit):
    kit.test("parallel", "--gtest_filter=CudaModule*")
    for test in ("runtime_doctor", "engine_device_access", "engine_gpu_tiers"):
        kit.test(test)


def step_parity(kit):
    runs, comparisons = {}, []

    def add(run, model, settings, oracle=None, tolerance=0.0):
        runs[run] = functools.partial(kit.train, run, model, TINY | settings)
        if oracle:
            comparisons.append((run, oracle, tolerance))

    on_cpu = {"launch.backend": "gloo"}
    for model in ("gpt2", "llama", "dropout"):
        add(f"cpu-{model}", model, on_cpu)
        for dtype in ("fp32", "bf16", "fp16"):
            add(f"gpu-{model}-{dtype}", model, {"train.dtype": dtype}, f"cpu-{model}", PARITY[dtype])
    for model in ("gpt2", "llama"):
        for name, settings in priced(kit).items():
            settings, oracle = {"train.dtype": "bf16"} | settings, f"cpu-{model}"
            if name == "fp8":  # a CPU multiplies the values of the same 8-bit operands
                oracle += "-fp8"
                add(oracle, model, settings | on_cpu)
            add(f"gpu-{model}-{name}", model, settings, oracle, PARITY["bf16"])
    trained_and_same(kit, runs, comparisons)


def step_stages(kit):
    settings = {"stage0": {"zero.stage": 0}} | {f"stage{stage}": {"zero.stage": stage} for stage in (1, 2, 3)}
    settings |= {"layers": {"zero.stage": 3, "train.accumulation_order": "layer"},
                 "recomputed": {"zero.stage": 3, "recompute.mode": "full"},
                 "no-graphs": {"train.cuda_graphs": "never"}}
    runs = {run: functools.partial(kit.train, run, "gpt2", TINY | more) for run, more in settings.items()}
    trained_and_same(kit, runs, [(run, "stage0", 1e-5) for run in runs if run != "stage0"])


def ranks_on_one_card(kit, run, model, settings, count=2):
    """NCCL refuses ranks on one card of one host, so each says that it is a host of its own."""
    config = kit.config(run, model, TINY | settings | {"launch.timeout": 60 * PATIENCE})
    port, ranks, logs = free_port(), [], [kit.work / f"{run}-{rank}.txt" for rank in range(count)]
    with contextlib.ExitStack() as files:
        for rank, log in enumerate(logs):
            env = {"RANK": rank, "WORLD_SIZE": count, "LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 1, "MASTER_ADDR": "127.0.0.1",
                   "MASTER_PORT": port, "NCCL_HOSTID": f"host{rank}", "NCCL_SOCKET_IFNAME": "lo", "NCCL_NET": "Socket",
                   "NCCL_P2P_DISABLE": 1, "NCCL_SHM_DISABLE": 1, "NCCL_IB_DISABLE": 1, "GLOO_SOCKET_IFNAME": "lo"}
            ranks.append(subprocess.Popen([str(kit.sluice), "train", str(config)], stdin=subprocess.DEVNULL,
                                          env=kit.env | {key: str(value) for key, value in env.items()},
                                          stdout=files.enter_context(log.open("w")), stderr=subprocess.STDOUT))
        try:
            codes = [rank.wait(timeout=180 * PATIENCE) for rank in ranks]
        except subprocess.TimeoutExpired:
            codes = ["no end within 180 s"]
        finally:
            for rank in ranks:
                rank.kill()
                rank.wait()
    texts = [log.read_text(errors="replace") for log in logs]
    print(*texts, sep="\n")
    if codes != [0] * count:
        raise Failed(f"{run}: ranks ended with {codes}: {last_line(texts[0])}")


def step_nccl(kit):
    runs = {"cpu-two": functools.partial(kit.train, "cpu-two", "gpt2", TINY | {"launch.backend": "gloo", "launch.nproc": 2})}
    for stage in (0, 1, 2, 3):
        runs[f"nccl{stage}"] = functools.partial(ranks_on_one_card, kit, f"nccl{stage}", "gpt2", {"zero.stage": stage})
    trained_and_same(kit, runs, [(run, "cpu-two", PARITY["fp32"]) for run in runs if run != "cpu-two"])


def step_mesh(kit):
    tensor = {"parallel.tensor": 2}
    sequence = tensor | {"parallel.sequence": True}
    stages = {"parallel.pipeline": 2, "train.micro_batch": 2}
    runs, comparisons = {}, []
    for name, model, settings, count in (
            ("tensor-gpt2", "gpt2", tensor, 2), ("sequence-gpt2", "gpt2", sequence | {"zero.stage": 3}, 2),
            ("sequence-llama", "llama", sequence, 2), ("tensor-data", "llama", sequence | {"zero.stage": 2}, 4),
            ("pipeline", "gpt2", stages, 2), ("pipeline-data", "llama", stages | {"zero.stage": 3}, 4),
            ("pipeline-pieces", "llama", stages | {"parallel.schedule": "interleaved", "parallel.virtual_stages": 2}, 2),
            ("pipeline-full", "gpt2", stages | {"parallel.schedule": "zero_bubble"}, 2)):
        on_cpus = TINY | settings | {"launch.backend": "gloo", "launch.nproc": count}
        runs[f"cpu-{name}"] = functools.partial(kit.train, f"cpu-{name}", model, on_cpus)
        runs[f"nccl-{name}"] = functools.partial(ranks_on_one_card, kit, f"nccl-{name}", model, settings, count)
        comparisons.append((f"nccl-{name}", f"cpu-{name}", PARITY["fp32"]))
    never = "nccl-pipeline-no-graphs"
    runs[never] = functools.partial(ranks_on_one_card, kit, never, "gpt2", stages | {"train.cuda_graphs": "never"})
    trained_and_same(kit, runs, [*comparisons, (never, "nccl-pipeline", 1e-5)])


def step_commands(kit):
    """A run that stops and goes on, on the card and against itself; evaluation and text beside the CPU."""
    steps = 2 if EMULATED else 8
    settings = TINY | {"train.steps": steps, "train.dtype": "bf16", "train.deterministic": True, "data.split": [999, 1], "train.eval_steps": 2}
    kit.train("whole", "llama", settings)
    kit.train("parts", "llama", settings | {"train.steps": steps // 2, "checkpoint.at_end": True})
    config = kit.config("parts", "llama", settings, keep=True)
    kit.call([kit.sluice, "train", config, "--resume", "auto"])
    same(kit, "parts", "whole", 1e-6)
    saved, backends = kit.work / "parts", (kit.backend, "gloo")
    command = [kit.sluice, "eval", config, "--checkpoint", saved, "--json", "--quiet", "--set"]
    outputs = (kit.call([*command, f"launch.backend={backend}"]) for backend in backends)
    ours, cpus = (json.loads(text[text.index("{"):])["loss"] for text in outputs)
    note(f"eval: loss {ours:.5f}, on the CPU {cpus:.5f}")
    if not math.isclose(ours, cpus, rel_tol=PARITY["bf16"]):
        raise Failed("eval gives another loss than on the CPU")
    command = [kit.sluice, "generate", "--checkpoint", saved, "--prompt", "def ", "--max-tokens", 24, "--temperature", 0, "--set"]
    ours, cpus = (kit.call([*command, f"launch.backend={backend}"]).splitlines()[:-1] for backend in backends)  # the last line has times
    note(f"generate: the words {'are' if ours == cpus else 'are not'} those of the CPU")
    kit.train("traced", "gpt2", TINY | {"train.dtype": "bf16", "output.trace": True, "train.deterministic": True})
    kit.train("untraced", "gpt2", TINY | {"train.dtype": "bf16", "train.deterministic": True})
    same(kit, "traced", "untraced", 1e-6)


def step_memory(kit):
    recomputed = {"recompute.mode": "full"}
    wrong = []
    for run, model, settings in (("memory-345m", "345m", {}), ("memory-345m-recomputed", "345m", recomputed),
                                 ("memory-345m-stage3", "345m", {"zero.stage": 3}), ("memory-1558m", "1558m", recomputed),
                                 *((f"memory-345m-{name}", "345m", more) for name, more in priced(kit).items())):
        with if_it_fits():
            kit.train(run, model, LARGE | {"train.steps": 3} | settings)
            reserved, planned, text = reserved_and_planned(kit, run)
            note(f"{run}: {text}")
            if abs(reserved / planned - 1) > 0.03:
                wrong.append(run)
    if wrong:
        raise Failed(f"more than 3 % apart: {', '.join(wrong)}")


def step_tiers(kit):
    exact = LARGE | {"train.deterministic": True, "output.trace": True}  # else runs of equal settings differ too
    swap = {"offload.nvme_path": [str(kit.work / "swap")]}
    kit.train("on-device", "345m", exact)
    speed_of(kit, "on-device")
    failures = {}
    nvme = {key: "nvme" if value == "host" else value for key, value in ON_HOST.items()}
    for run, settings in {
            "optimizer-host": {"offload.optimizer": "host"}, "states-host": ON_HOST,
            "activations-host": {"recompute.mode": "full", "offload.activations": "host"},
            "optimizer-nvme": {"offload.optimizer": "nvme"} | swap,
            "all-nvme": nvme | swap | {"recompute.mode": "full", "offload.activations": "nvme"}}.items():
        try:
            kit.train(run, "345m", exact | settings, 300 if "nvme" in run else 120)  # 16 GB a step, and a disk of 0.5 GB/s
            same(kit, run, "on-device", 1e-6)
            speed_of(kit, run)
            note(f"{run}: {lanes.rates(kit.work / run / 'trace.json')}")
        except Failed as failed:
            failures[run] = failed
    end_with(failures)


def step_doctor(kit):
    kit.call([kit.sluice, "doctor", "--nvme-path", kit.work, "--out", kit.work / "rates.json"], 400)


def train_for_speed(kit, run, name="", more=None):
    model, settings = SPEED[run]
    kit.train(run + name, model, LARGE | {"train.steps": 10} | settings | (more or {}))
    return speed_of(kit, run + name)


def step_speed(kit):
    plain = {}
    for run in SPEED:
        with if_it_fits():
            plain[run] = train_for_speed(kit, run)
    for run in filter(plain.get, PRICED_RUNS):
        for name, settings in priced(kit).items():
            with if_it_fits():
                tokens = train_for_speed(kit, run, f"-{name}", settings)
                note(f"{run}: {name}: {tokens / plain[run]:.3f} of the plain run's tokens/s")


def step_profile(kit):
    """The kernels of a step. CUPTI makes it some percent longer."""
    if not kit.kernel_times.is_file() and not build_kernel_times(kit.kernel_times):
        note("without CUPTI there is no table of kernels")
        return
    for run in ("speed-1558m-8", "speed-1b"):
        model, settings = SPEED[run]
        with if_it_fits():
            for line in kernel_table.table(kit.kernel_file(run.replace("speed", "profile"), model, LARGE | settings)):
                note(line)


def step_peers(kit):
    """Plain PyTorch models on the same card; each run trains Sluice again, once for each of its settings."""
    script = next(path for path in (HERE / "peers", HERE.parent / "peers") if path.is_dir()) / "peer_step.py"
    installed = [name for name, (arguments, *_) in PEERS.items() if "deepspeed" not in arguments or importlib.util.find_spec("deepspeed")]
    for run in PEER_RUNS:
        (model, settings), speeds = SPEED[run], {}
        micro_batch = (LARGE | settings)["train.micro_batch"]
        common = ["--wait", "--steps", 10, "--micro-batch", micro_batch, "--shape", json.dumps(MODELS[model])]
        for name in (name for name in installed if run in PEERS[name][1]):
            (arguments, _, more), key = PEERS[name], json.dumps(PEERS[name][2])
            with if_it_fits():
                speeds[key] = speeds.get(key) or train_for_speed(kit, run, f"-{name.replace(' ', '-')}" * bool(more), more)
            if key not in speeds:
                continue
            try:
                lines = kit.call([sys.executable, "-B", script, *arguments, *common], 400).splitlines()  # libraries print more at the end
                answer = json.loads(next(line for line in reversed(lines) if line.startswith("{")))
            except Failed as failed:  # not Sluice's failure
                note(f"{run}: {name}: {failed}")
                continue
            theirs, memory = micro_batch * MODELS[model]["seq"] / statistics.median(answer["seconds"][2:]), f"{answer['reserved'] / 2**30:.2f} GiB"
            note(f"{run}: {name} {theirs:.0f} tokens/s, {memory}; sluice {speeds[key] / theirs:.2f} times as many tokens/s")


def step_big(kit):
    """Updates on the host begin early from the fifth step on, as far as second places of states have room."""
    common = {"train.micro_batch": 2, "train.global_batch": 8, "train.dtype": "bf16", "train.clip": 0, "output.trace": True}
    host = common | OPTIMIZER_ON_HOST
    early = host | {"offload.speculate": "auto", "memory.host": f"{int(min(0.93 * host_memory(), 116 * 2**30) / 1024)}KiB"}
    by_layer = early | {"train.accumulation_order": "layer", "recompute.mode": "selective"}
    for run, settings in {"8b": host, "8b-early": early, "8b-layer": by_layer, "8b-layer-bf16": by_layer | {"offload.states_dtype": "bf16"},
            "8b-layer-gradients": by_layer | {"zero.stage": 2, "offload.gradients": "host", "offload.gradients_dtype": "bf16"},
            "8b-part": early | {"train.micro_batch": 4, "offload.device_fraction": 0.4}, "8b-device": common | {"train.micro_batch": 1, "zero.stage": 3}}.items():
        steps, after = (10, 7) if "offload.speculate" in settings else (5, 3)
        with if_it_fits():
            kit.train(run, "8b", {"train.steps": steps} | settings, 300)
            speed_of(kit, run, after)
            note(f"{run}: {lanes.rates(kit.work / run / 'trace.json')}")


STEPS = {f.__name__.removeprefix("step_"): f for f in (
    step_env, step_kernels, step_module, step_parity, step_stages, step_nccl, step_mesh, step_commands, step_memory, step_tiers, step_doctor,
    step_speed, step_profile, step_peers, step_big)}


def run_step(kit, name, out):
    """(failed, seconds) of a step; its log is OUT/NAME.txt."""
    begin, log, failure = time.monotonic(), io.StringIO(), None
    try:
        with contextlib.redirect_stdout(log):
            STEPS[name](kit)
    except Failed as failed:
        failure = failed
    except Exception as error:  # a fault of the kit; the other steps may run
        log.write(traceback.format_exc())
        failure = f"{type(error).__name__}: {error}"
    text = log.getvalue() + (f"FAILED: {failure}\n" if failure else "")
    (out / f"{name}.txt").write_text(text, encoding="utf-8")
    print(f"\n==== {name}", *(line for line in text.splitlines() if line.startswith(("=>", "FAILED"))), sep="\n", flush=True)
    return failure is not None, time.monotonic() - begin


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--build", type=pathlib.Path, help="a build folder in place of a kit")
    parser.add_argument("--backend", default="auto", choices=("auto", "nccl", "gloo"), help="of the runs; gloo: a rehearsal on the CPU")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("gpu-out"), help="logs and runs")
    parser.add_argument("--jobs", type=int, default=1, help="runs side by side in parity, stages, nccl and mesh")
    parser.add_argument("--seconds", type=float, default=math.inf, help="for all steps together; what they do not do then counts as failed")
    parser.add_argument("steps", nargs="*", help=f"of {', '.join(STEPS)}; all: every one")
    args = parser.parse_args()
    args.out = args.out.resolve()
    unknown = [name for name in args.steps if name not in STEPS and name != "all"]
    if unknown:
        parser.error(f"there is no step {unknown[0]}; there are {', '.join(STEPS)}")
    steps = list(STEPS) if "all" in args.steps else args.steps or list(STEPS)[:7]
    try:
        kit = Kit(args)
    except Failed as failed:
        parser.error(str(failed))
    results = {name: run_step(kit, name, args.out) for name in steps}
    print("", *(f"{name:9s} {'FAILED' if failed else 'ok':7s} {seconds:4.0f} s" for name, (failed, seconds) in results.items()), sep="\n")
    return sum(failed for failed, _ in results.values())


if __name__ == "__main__":
    sys.exit(main())
