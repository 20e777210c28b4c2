"""A small GPT-2 trained by DeepSpeed from its JSON and by sluice from a YAML, on the same weights and samples.

The initial weights are a Hugging Face folder (model.from). The samples are those of sluice's order, which tests/perf/run_rules.py
computes from the seed. Both sides run on the CPU.
"""

import importlib.util
import json
import os
import pathlib
import random
import socket
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).parent
NEEDED = ("torch", "deepspeed", "transformers", "safetensors", "numpy")
SEED = 7
SEQ = 64
RANKS = 2
STEPS = 20
BATCH = 12
RARE = ord("~")


missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
if missing:
    print(f"skipped: needs the package(s) {', '.join(missing)}")
    sys.exit(77)
sys.path.insert(0, str(HERE.parent / "perf"))
import run_rules


def environment(**more):
    # DeepSpeed's kernels are compiled once, in the user's cache.
    return dict(os.environ, DS_ACCELERATOR="cpu", CUDA_VISIBLE_DEVICES="", OMP_NUM_THREADS="1", **more)


def sluice(program, scratch, *arguments):
    done = subprocess.run([program, *arguments], cwd=scratch, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, f"sluice {' '.join(arguments)}: exit code {done.returncode}\n{done.stdout[-4000:]}"
    return done.stdout


def write_text(scratch, overflows):
    """Words; RARE stands in one sample of each of the first `overflows` steps."""
    draw = random.Random(5)
    words = ["".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=draw.randint(2, 8))) for _ in range(60)]
    text = bytearray(" ".join(draw.choices(words, k=4000)), "ascii")
    order = run_rules.SampleOrder(len(text) // SEQ, SEED)  # an end of text follows
    for step in range(overflows):
        text[order.draw(step * BATCH) * SEQ + SEQ // 3] = RARE
    (scratch / "text.txt").write_bytes(text)


def write_model(folder, dtype, overflows):
    """Random weights that `dtype` holds exactly: DeepSpeed makes its fp32 masters of rounded weights. With `overflows` the
    first norm multiplies the gradient of RARE by 1e7, which fp16 does not hold at any usual loss scale."""
    import torch
    import transformers

    torch.manual_seed(3)
    shape = transformers.GPT2Config(n_layer=2, n_embd=64, n_head=4, n_positions=SEQ, vocab_size=257, resid_pdrop=0.0,
                                    embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False, bos_token_id=256, eos_token_id=256,
                                    layer_norm_epsilon=1e-14 if overflows else 1e-5)
    model = transformers.GPT2LMHeadModel(shape)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.08) if parameter.dim() > 1 else parameter.add_(0.05 * torch.randn_like(parameter))
        if overflows:
            model.transformer.wpe.weight.zero_()
            model.transformer.wte.weight[RARE] = 0
    model.to(getattr(torch, dtype)).float().save_pretrained(folder)


def write_inputs(scratch, dtype, overflows=0):
    write_text(scratch, overflows)
    write_model(scratch / "hf", dtype, overflows)


def run_yaml(scratch, name, body):
    """Arguments of a run: its YAML `body`, and what the test gives to each run."""
    (scratch / f"{name}.yaml").write_text(body)
    given = ["model.from=hf", f"model.seq={SEQ}", "data.text=[text.txt]", "data.tokenizer=bytes", "data.split=[1, 0]",
             "data.cache_dir=tokens", f"train.seed={SEED}", "train.eval_steps=0", "launch.threads=1",
             f"output.dir=run-{name}", "checkpoint.at_end=false"]
    return [f"{name}.yaml", *(f"--set={setting}" for setting in given)]


def make_tokens(program, scratch):
    """The cache of tokens that DeepSpeed's ranks read too."""
    sluice(program, scratch, "train", *run_yaml(scratch, "tokens", "train: {steps: 0}\n"))


def train_ours(program, scratch, name, body, *more):
    """The lines of metrics.jsonl."""
    sluice(program, scratch, "train", *run_yaml(scratch, name, body), *more)
    return [json.loads(line) for line in (scratch / f"run-{name}" / "metrics.jsonl").read_text().splitlines()]


def migrated(program, scratch, name):
    """The YAML that `sluice migrate` makes of the JSON that DeepSpeed trained from."""
    out = f"{name}/migrated.yaml"
    sluice(program, scratch, "migrate", f"{name}/ds_config.json", "--world", str(RANKS), "--model", "hf", "-o", out,
           f"--set=train.steps={STEPS}")
    return (scratch / out).read_text()


def exit_codes(ranks, patience_s=900):
    """A rank that fails leaves its peers waiting: all are ended."""
    end = time.monotonic() + patience_s
    while time.monotonic() < end and None in (codes := [process.poll() for process in ranks]) and not any(codes):
        time.sleep(0.1)
    for process in ranks:
        process.kill()
    return [process.wait() for process in ranks]


def train_theirs(scratch, name, settings, save_at=None):
    """What rank 0 measured in each step. A checkpoint in `name` after step `save_at`."""
    out = scratch / name
    out.mkdir()
    (out / "ds_config.json").write_text(json.dumps(settings))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    ranks = []
    for rank in range(RANKS):
        variables = environment(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), LOCAL_RANK=str(rank),
                                WORLD_SIZE=str(RANKS))
        with open(out / f"rank-{rank}.log", "w") as log:
            command = [sys.executable, "-B", __file__, str(scratch), name, str(save_at or 0)]
            ranks.append(subprocess.Popen(command, env=variables, stdout=log, stderr=log))
    codes = exit_codes(ranks)
    logs = "".join(f"rank {rank}:\n" + (out / f"rank-{rank}.log").read_text()[-3000:] for rank in range(RANKS))
    assert codes == [0] * RANKS, f"DeepSpeed: exit codes {codes}\n{logs}"
    return json.loads((out / "steps.json").read_text())


def differences(case, ours, theirs, tolerance):
    """Fails where a step differs; returns the largest difference of a loss."""
    assert [line["step"] for line in ours] == [line["step"] for line in theirs], case
    worst = 0.0
    for mine, their in zip(ours, theirs):
        where = f"{case}, step {mine['step']}"
        assert mine["skipped"] == their["skipped"], f"{where}: skipped here {mine['skipped']}, there {their['skipped']}"
        apart = abs(mine["loss"] - their["loss"])
        assert apart <= tolerance, f"{where}: a loss of {mine['loss']} is {apart:.3g} from {their['loss']}"
        assert abs(mine["lr"] - their["lr"]) <= 1e-9, f"{where}: learning rates {mine['lr']} and {their['lr']}"
        if their["loss_scale"] is not None:
            assert mine["loss_scale"] == their["loss_scale"], f"{where}: scales {mine['loss_scale']} and {their['loss_scale']}"
        worst = max(worst, apart)
    return worst


def rank_step(engine, source, step):
    """One optimizer step of one rank; the mean loss of its micro-batches."""
    import torch
    import torch.nn.functional as F

    micro, accumulation = engine.train_micro_batch_size_per_gpu(), engine.gradient_accumulation_steps()
    total = torch.zeros(())
    for micro_batch in range(accumulation):
        first = (micro_batch * RANKS + torch.distributed.get_rank()) * micro
        ids = torch.from_numpy(source.rows(step, engine.train_batch_size(), first, micro))
        logits = engine(input_ids=ids[:, :-1]).logits
        loss = F.cross_entropy(logits.flatten(0, 1).float(), ids[:, 1:].flatten())
        total += loss.detach() / accumulation
        engine.backward(loss)
        engine.step()
    return total


def rank_main(scratch, name, save_at):
    import deepspeed
    import torch
    import transformers

    torch.set_num_threads(1)
    # DeepSpeed refuses fp16 where oneDNN lacks fp16 instructions; PyTorch computes it everywhere.
    deepspeed.accelerator.get_accelerator().is_fp16_supported = lambda: True
    deepspeed.init_distributed(dist_backend="gloo")
    model = transformers.GPT2LMHeadModel.from_pretrained(scratch / "hf", dtype=torch.float32)
    settings = str(scratch / name / "ds_config.json")
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=settings)
    source = run_rules.TokenRows(scratch / "tokens", SEQ, SEED)
    lines = []
    for step in range(1, STEPS + 1):
        skipped, scale = engine.skipped_steps, getattr(engine.optimizer, "cur_scale", None)
        line = {"step": step, "lr": engine.optimizer.param_groups[0]["lr"], "loss_scale": scale}
        loss = rank_step(engine, source, step)
        torch.distributed.all_reduce(loss)
        lines.append(line | {"loss": loss.item() / RANKS, "skipped": engine.skipped_steps > skipped})
        if step == save_at:
            engine.save_checkpoint(str(scratch / name))
    if torch.distributed.get_rank() == 0:
        (scratch / name / "steps.json").write_text(json.dumps(lines))


if __name__ == "__main__":
    rank_main(pathlib.Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
