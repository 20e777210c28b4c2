#!/usr/bin/env python3
"""Learning rates and loss scales of DeepSpeed's own classes beside ours.

    deepspeed_rules.py PROGRAM [--source DIR]

PROGRAM is sluice_deepspeed_rules.  DIR holds runtime/lr_schedules.py and runtime/fp16/loss_scaler.py; without it, they are those of
the installed package.  The two files are loaded alone, with a stand-in for the rest of DeepSpeed and, where torch is missing, for
torch.  Exits 77 where the package is not installed, and 1 where a learning rate differs by more than 1e-9, or a scale at all.
"""

import argparse
import importlib.util
import logging
import os
import random
import subprocess
import sys
import types

STEPS = 2000
TOLERANCE = 1e-9
LR = 6e-4
TYPES = {"WarmupLR": 0, "WarmupDecayLR": 1, "WarmupCosineLR": 2}  # positions in ScheduleType
WARMUPS = {"linear": 0, "log": 1}  # positions in WarmupShape


def module(name, **members):
    made = types.ModuleType(name)
    made.__dict__.update(members)
    sys.modules[name] = made
    return made


def stand_ins():
    """What the two files import of torch and of DeepSpeed."""
    if importlib.util.find_spec("torch") is None:
        optimizer = type("Optimizer", (), {})
        optim = module("torch.optim", Optimizer=optimizer)
        module("torch", is_tensor=lambda value: False, optim=optim, half="half", float16="half")
    logger = logging.getLogger("deepspeed")
    logger.setLevel(logging.ERROR)
    comm = module("deepspeed.comm", get_rank=lambda: 0)
    module("deepspeed.utils", logger=logger)
    module("deepspeed.runtime.config_utils", DeepSpeedConfigObject=object)
    module("deepspeed", comm=comm)
    module("deepspeed.runtime")


def load(source, name):
    path = os.path.join(source, name)
    spec = importlib.util.spec_from_file_location(os.path.basename(name)[:-3], path)
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def scheduler_cases():
    """(class, parameters) of DeepSpeed's configuration."""
    for warmup_type in WARMUPS:
        for warmup in (1, 2, 7, 200, 1000, 3000):
            common = {"warmup_num_steps": warmup, "warmup_type": warmup_type}
            for low in (0.0, 2e-5):
                yield "WarmupLR", common | {"warmup_min_lr": low, "warmup_max_lr": LR}
            for total in (2000, 1500, 4000, warmup, warmup + 1):
                for low in (0.0, 2e-5):
                    yield "WarmupDecayLR", common | {"total_num_steps": total, "warmup_min_lr": low, "warmup_max_lr": LR}
                for low, end in ((0.0, 1e-4), (0.1, 0.0), (0.0, 0.5)):
                    yield "WarmupCosineLR", common | {"total_num_steps": total, "warmup_min_ratio": low, "cos_min_ratio": end}


def their_rates(schedules, name, parameters):
    """The learning rate of each optimizer step: the engine steps the scheduler after the optimizer."""
    base = schedules.Optimizer
    optimizer = type("One", (base,), {"__init__": lambda self: None})()
    optimizer.param_groups = [{"lr": LR}]
    scheduler = getattr(schedules, name)(optimizer, **parameters)
    rates = []
    for _ in range(STEPS):
        rates.append(optimizer.param_groups[0]["lr"])
        scheduler.step()
    return rates


def schedule_request(name, parameters):
    low = parameters.get("warmup_min_lr", LR * parameters.get("warmup_min_ratio", 0))
    end = LR * parameters["cos_min_ratio"] if name == "WarmupCosineLR" else low
    return " ".join(map(repr, ("schedule", TYPES[name], WARMUPS[parameters["warmup_type"]], parameters["warmup_num_steps"], low, end,
                               parameters.get("total_num_steps", 0), LR, STEPS))).replace("'", "")


def compare_schedules(schedules, ask):
    faults = compared = 0
    for name, parameters in scheduler_cases():
        theirs = their_rates(schedules, name, parameters)
        ours = [float(rate) for rate in ask(schedule_request(name, parameters)).split()]
        apart = max((abs(a - b), step) for step, (a, b) in enumerate(zip(theirs, ours), 1))
        compared += 1
        if len(ours) != STEPS or not apart[0] <= TOLERANCE:
            faults += 1
            print(f"{name} {parameters}: {apart[0]} apart at step {apart[1]}")
    print(f"{compared} schedules of {STEPS} steps compared, {faults} differ")
    return faults


def their_scales(scaler, overflows):
    scales = []
    for overflow in overflows:
        try:
            scaler.update_scale(overflow)
        except Exception:  # its way to end a run at the lowest scale
            return scales + ["stop"]
        scales.append(scaler.cur_scale)
    return scales


def compare_scales(scaling, ask):
    draw = random.Random(11)
    faults, runs = 0, 400
    for _ in range(runs):
        window, hysteresis, consecutive = draw.randint(1, 6), draw.randint(1, 4), draw.random() < 0.5
        rarity = draw.uniform(0.02, 0.5)
        overflows = [draw.random() < rarity for _ in range(400)]
        theirs = their_scales(scaling.DynamicLossScaler(65536, window, 4, hysteresis, consecutive), overflows)
        request = f"loss_scale 0 65536 {window} {window + 1} {hysteresis} {int(consecutive)} 4 "
        answer = ask(request + "".join("01"[overflow] for overflow in overflows)).split()
        if [word if word == "stop" else float(word) for word in answer] != theirs:
            faults += 1
            print(f"{request}: the scales differ")
    print(f"{runs} runs of a dynamic loss scale compared, {faults} differ")
    return faults


def main():
    parser = argparse.ArgumentParser(description="DeepSpeed's learning rates and loss scales beside ours.")
    parser.add_argument("program")
    parser.add_argument("--source", help="the folder deepspeed/ of a source tree")
    args = parser.parse_args()
    source = args.source
    if source is None:
        spec = importlib.util.find_spec("deepspeed")
        if spec is None:
            print("skipped: needs the package deepspeed, or --source")
            return 77
        source = os.path.dirname(spec.origin)
    stand_ins()
    with subprocess.Popen([args.program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as ours:

        def ask(request):
            ours.stdin.write(request + "\n")
            ours.stdin.flush()
            return ours.stdout.readline()

        faults = compare_schedules(load(source, "runtime/lr_schedules.py"), ask)
        faults += compare_scales(load(source, "runtime/fp16/loss_scaler.py"), ask)
        ours.stdin.close()
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
