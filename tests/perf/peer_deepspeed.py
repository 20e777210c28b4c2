"""Does with DeepSpeed what a run of sluice did: the same model, initial weights, rows of tokens and updates.

    ./sluice train configs/bench/gpt2-45m.yaml --set output.dir=runs/b --set data.cache_dir=runs/b/tokens
    python tests/perf/peer_deepspeed.py runs/b                          # stage, dtype and steps are the run's
    python tests/perf/peer_deepspeed.py runs/b --stage 3 --offload cpu
    python tests/perf/peer_deepspeed.py runs/b --stage 3 --offload nvme --nvme-path <folder on the disk to measure>

Everything is read from the run's resolved config.yaml; what this cannot repeat is refused.  compare.py runs both sides and
compares them.

It starts its own ranks (torch.distributed.run), and needs torch, transformers 4.x, deepspeed and ninja from PyPI, and a C++
compiler: DeepSpeed builds its CPU Adam in the first run (half a minute, before the first step).  --offload nvme needs libaio
with its headers besides.  What the ranks log goes to stderr; stdout has one line of JSON.

Where oneDNN finds instructions that the machine then refuses (bf16 ends with SIGILL), set ONEDNN_MAX_CPU_ISA to
AVX512_CORE_BF16; compare.py finds that out itself.
"""

import argparse
import importlib.metadata

import peer_work


def arguments():
    parser = argparse.ArgumentParser(description="DeepSpeed on the work of a run of sluice; prints JSON.")
    peer_work.add_arguments(parser, range(4))
    parser.add_argument("--offload", choices=("none", "cpu", "nvme"), default="none")
    parser.add_argument("--offload-what", choices=("optimizer", "all"), help="default: all at stage 3, else optimizer")
    parser.add_argument("--nvme-path", help="folder for --offload nvme")
    args = peer_work.parse(parser)
    args.offload_what = args.offload_what or ("all" if args.stage == 3 else "optimizer")
    if args.offload != "none" and args.offload_what == "all" and args.stage != 3:
        parser.error("--offload-what all needs --stage 3: DeepSpeed offloads parameters there only")
    if args.offload != "none" and args.stage == 0:
        parser.error("--offload needs --stage 1, 2 or 3")
    if args.offload == "nvme" and (args.stage != 3 or not args.nvme_path):
        parser.error("--offload nvme needs --stage 3 and --nvme-path")
    return args


def deepspeed_config(args):
    train, optimizer = args.config["train"], args.config["optimizer"]
    zero = {"stage": args.stage}
    if args.offload != "none":
        target = {"device": args.offload, "nvme_path": args.nvme_path} if args.offload == "nvme" else {"device": "cpu"}
        zero["offload_optimizer"] = target
        if args.offload_what == "all":
            zero["offload_param"] = target
    adamw = {"lr": float(optimizer["lr"]), "betas": optimizer["betas"], "eps": float(optimizer["eps"])}
    return {
        "train_micro_batch_size_per_gpu": train["micro_batch"],
        "gradient_accumulation_steps": 1,
        "gradient_clipping": float(train["clip"]),
        "optimizer": {"type": "AdamW", "params": adamw | {"weight_decay": float(optimizer["weight_decay"])}},
        "bf16": {"enabled": args.dtype == "bf16"},
        "zero_optimization": zero,
        "steps_per_print": 10**9,
    }


def set_masters(engine, args):
    """DeepSpeed takes its fp32 masters from weights rounded to bf16.  On that grid an update below half a step of it changes
    no weight (0.2 in the loss of step 2 at lr 3e-5), so the masters get the values that were rounded, as ours have."""
    import safetensors.torch
    from deepspeed.utils import safe_set_full_fp32_param

    values = safetensors.torch.load_file(args.weights)
    names = {parameter: name for name, parameter in engine.module.named_parameters()}
    if args.stage > 0:
        for parameter, name in names.items():
            safe_set_full_fp32_param(parameter, values[name])
        return
    for flat, group in zip(engine.optimizer.fp32_groups_flat, engine.optimizer.fp16_groups):
        first = 0
        for parameter in group:
            flat.data[first : first + parameter.numel()] = values[names[parameter]].flatten()
            first += parameter.numel()


class Engine:
    """DeepSpeed's engine."""

    def __init__(self, args):
        import deepspeed

        self.args = args
        deepspeed.init_distributed(dist_backend="gloo")

    def build(self, model):
        import deepspeed

        args, decay = self.args, float(self.args.config["optimizer"]["weight_decay"])
        self.engine, *_ = deepspeed.initialize(
            model=model, model_parameters=peer_work.decayed_groups(model, decay), config=deepspeed_config(args)
        )
        if args.stage == 0 and args.dtype == "bf16":
            # Here DeepSpeed makes the moments by an update with zero gradients and counts it, so that each bias correction to
            # come is that of the step after (at lr 3e-4 0.03 in the loss of step 3).  Without moments the first update is
            # step 1.
            self.engine.basic_optimizer.state.clear()
        if args.dtype == "bf16":
            set_masters(self.engine, args)

    def step(self, ids):
        loss = peer_work.loss_of(self.engine, ids)
        self.engine.backward(loss)
        self.engine.step()
        return loss.detach()

    def grad_norm(self):
        norm = self.engine.get_global_grad_norm()  # None of stage 0 in fp32
        return None if norm is None else float(norm)

    def about(self):
        optimizer = getattr(self.engine.optimizer, "optimizer", self.engine.optimizer)
        offload = {"offload": self.args.offload} | ({"offload_what": self.args.offload_what} if self.args.offload != "none" else {})
        return {"peer": "deepspeed", "deepspeed": importlib.metadata.version("deepspeed"), "optimizer": type(optimizer).__name__} | offload


if __name__ == "__main__":
    peer_work.main(arguments(), Engine, {"DS_ACCELERATOR": "cpu"})
