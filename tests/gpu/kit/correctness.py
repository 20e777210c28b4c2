"""Steps of run_kit.py that compare trainings: of the card with those of CPUs, and of the card among themselves."""
import contextlib
import functools
import json
import math
import subprocess

from programs import EMULATED, NEVER_CLIPPED, PARITY, PASSING, PATIENCE, TINY, Failed, free_port, last_line
from results import note, priced, same, trained_and_same


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
    comparisons = [(run, "stage0", 1e-5) for run in runs if run != "stage0"]
    in_a_row = TINY | {"train.global_batch": TINY["train.micro_batch"]}
    for run, clip, env in (("kept", NEVER_CLIPPED, None), ("passing", NEVER_CLIPPED, PASSING), ("in-backward", 0, PASSING)):
        runs[run] = functools.partial(kit.train, run, "gpt2", in_a_row | {"train.clip": clip}, env=env)
        if run != "kept":
            comparisons.append((run, "kept", 1e-5))
    trained_and_same(kit, runs, comparisons)


def ranks_on_one_card(kit, run, model, settings, count=2, env=None):
    """NCCL refuses ranks on one card of one host, so each says that it is a host of its own."""
    config = kit.config(run, model, TINY | settings | {"launch.timeout": 60 * PATIENCE})
    port, ranks, logs = free_port(), [], [kit.work / f"{run}-{rank}.txt" for rank in range(count)]
    with contextlib.ExitStack() as files:
        for rank, log in enumerate(logs):
            places = {"RANK": rank, "WORLD_SIZE": count, "LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 1, "MASTER_ADDR": "127.0.0.1",
                      "MASTER_PORT": port, "NCCL_HOSTID": f"host{rank}", "NCCL_SOCKET_IFNAME": "lo", "NCCL_NET": "Socket",
                      "NCCL_P2P_DISABLE": 1, "NCCL_SHM_DISABLE": 1, "NCCL_IB_DISABLE": 1, "GLOO_SOCKET_IFNAME": "lo"}
            ranks.append(subprocess.Popen([str(kit.sluice), "train", str(config)], stdin=subprocess.DEVNULL,
                                          env=kit.env | {key: str(value) for key, value in places.items()} | (env or {}),
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
    runs, comparisons = {}, []
    sent = {"zero.reduce_dtype": "bf16"}
    for name, more, env, stages, parity in (("", {}, {}, (0, 1, 2, 3), "fp32"), ("-in-backward", {"train.clip": 0}, PASSING, (0, 1, 2, 3), "fp32"),
                                            ("-sent-bf16", sent, {}, (1, 3), "bf16")):
        oracle = f"cpu-two{name}"
        runs[oracle] = functools.partial(kit.train, oracle, "gpt2", TINY | more | {"launch.backend": "gloo", "launch.nproc": 2})
        for stage in stages:
            run = f"nccl{stage}{name}"
            runs[run] = functools.partial(ranks_on_one_card, kit, run, "gpt2", more | {"zero.stage": stage}, env=env)
            comparisons.append((run, oracle, PARITY[parity]))
    trained_and_same(kit, runs, comparisons)


def step_mesh(kit):
    tensor = {"parallel.tensor": 2}
    sequence = tensor | {"parallel.sequence": True}
    stages = {"parallel.pipeline": 2, "train.micro_batch": 2}
    runs, comparisons = {}, []
    for name, model, settings, count in (
            ("tensor-gpt2", "gpt2", tensor, 2), ("sequence-gpt2", "gpt2", sequence | {"zero.stage": 3}, 2),
            ("sequence-llama", "llama", sequence, 2), ("tensor-data", "llama", sequence | {"zero.stage": 2}, 4),
            ("tensor-data-host", "llama", sequence | {"zero.stage": 2, "offload.optimizer": "host"}, 4),
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
