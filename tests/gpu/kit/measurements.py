"""Steps of run_kit.py that measure memory, rates and times of larger models."""
import importlib.util
import json
import pathlib
import statistics
import sys

import kernel_table
import lanes
from programs import (LARGE, MODELS, NEVER_CLIPPED, ON_HOST, OPTIMIZER_ON_HOST, PEER_RUNS, PEERS, PRICED_RUNS, SPEED, Failed, build_kernel_times,
                      host_memory)
from results import end_with, if_it_fits, note, priced, reserved_and_planned, same, speed_of

HERE = pathlib.Path(__file__).resolve().parent


def step_memory(kit):
    recomputed = {"recompute.mode": "full"}
    wrong = []
    for run, model, settings in (("memory-345m", "345m", {}), ("memory-345m-recomputed", "345m", recomputed),
                                 ("memory-345m-stage3", "345m", {"zero.stage": 3}), ("memory-1558m", "1558m", recomputed),
                                 ("memory-345m-in-backward", "345m", recomputed | {"train.clip": 0}),
                                 ("memory-1558m-in-backward", "1558m", recomputed | {"train.clip": 0}),
                                 *((f"memory-345m-{name}", "345m", more) for name, more in priced(kit).items())):
        if not kit.wants(run):
            continue
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
    oracles, failures = {}, {}  # oracle: its failure, or None
    nvme = {key: "nvme" if value == "host" else value for key, value in ON_HOST.items()}
    for run, settings in {
            "in-backward": {"train.clip": 0, "recompute.mode": "full"},
            "optimizer-host": {"offload.optimizer": "host"}, "states-host": ON_HOST,
            "activations-host": {"recompute.mode": "full", "offload.activations": "host"},
            "optimizer-nvme": {"offload.optimizer": "nvme"} | swap,
            "all-nvme": nvme | swap | {"recompute.mode": "full", "offload.activations": "nvme"}}.items():
        if not kit.wants(run):
            continue
        oracle = "on-device-unclipped" if settings.get("train.clip") == 0 else "on-device"
        try:
            if oracle not in oracles:
                oracles[oracle] = Failed(f"{oracle} failed")
                kit.train(oracle, "345m", exact | ({"train.clip": NEVER_CLIPPED} if "train.clip" in settings else {}))
                speed_of(kit, oracle)
                oracles[oracle] = None
            if oracles[oracle]:
                raise oracles[oracle]
            kit.train(run, "345m", exact | settings, 300 if "nvme" in run else 120)  # 16 GB a step, and a disk of 0.5 GB/s
            same(kit, run, oracle, 1e-6)
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
    for run in filter(kit.wants, SPEED):
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
    for run in filter(kit.wants, ("profile-1558m-8", "profile-1b")):
        model, settings = SPEED[run.replace("profile", "speed")]
        with if_it_fits():
            for line in kernel_table.table(kit.kernel_file(run, model, LARGE | settings)):
                note(line)


def step_peers(kit):
    """Plain PyTorch models on the same card; each run trains Sluice again, once for each of its settings."""
    script = next(path for path in (HERE / "peers", HERE.parent / "peers") if path.is_dir()) / "peer_step.py"
    installed = [name for name, (arguments, *_) in PEERS.items() if "deepspeed" not in arguments or importlib.util.find_spec("deepspeed")]
    for run in filter(kit.wants, PEER_RUNS):
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
        if not kit.wants(run):
            continue
        steps, after = (10, 7) if "offload.speculate" in settings else (5, 3)
        with if_it_fits():
            kit.train(run, "8b", {"train.steps": steps} | settings, 300)
            speed_of(kit, run, after)
            note(f"{run}: {lanes.rates(kit.work / run / 'trace.json')}")
