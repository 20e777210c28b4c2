"""Does with PyTorch's FSDP2 what a run of sluice did: the same model, initial weights, rows of tokens and updates.

    ./sluice train configs/bench/gpt2-45m.yaml --set output.dir=runs/b --set data.cache_dir=runs/b/tokens
    python tests/perf/peer_fsdp.py runs/b --stage 3

fully_shard of each block and of the root on CPU ranks over Gloo.  bf16 gathers and multiplies in bf16, reduces gradients in fp32 and
updates fp32 shards.  Stage 3 gathers a block again for its backward; stage 2 keeps the gathered weights until then.

Everything is read from the run's resolved config.yaml; what this cannot repeat is refused.  compare.py runs both sides and
compares them.  It starts its own ranks (torch.distributed.run), and needs torch and transformers 4.x from PyPI.
"""

import argparse

import peer_work


def arguments():
    parser = argparse.ArgumentParser(description="FSDP2 on the work of a run of sluice; prints JSON.")
    peer_work.add_arguments(parser, (2, 3))
    args = peer_work.parse(parser)
    if args.stage not in (2, 3):
        parser.error(f"the run has zero.stage {args.stage}; name --stage 2 or 3: FSDP2 shards weights, gradients and optimizer")
    return args


def blocks_of(model):
    return model.transformer.h if hasattr(model, "transformer") else model.model.layers


class Engine:
    """A model of fully_shard() and PyTorch's fused AdamW."""

    def __init__(self, args):
        import torch.distributed as dist

        self.args, self.norm = args, None
        dist.init_process_group("gloo")

    def build(self, model):
        import torch
        import torch.distributed as dist
        from torch.distributed import fsdp

        options = {"mesh": dist.init_device_mesh("cpu", (self.args.ranks,))}
        if self.args.dtype == "bf16":
            options["mp_policy"] = fsdp.MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        for block in blocks_of(model):
            fsdp.fully_shard(block, reshard_after_forward=self.args.stage == 3, **options)
        fsdp.fully_shard(model, **options)  # by default the root is not gathered again: the backward begins with it
        settings = self.args.config["optimizer"]
        groups = peer_work.decayed_groups(model, float(settings["weight_decay"]))
        betas = tuple(map(float, settings["betas"]))
        self.model, self.parameters = model, list(model.parameters())
        self.optimizer = torch.optim.AdamW(groups, lr=float(settings["lr"]), betas=betas, eps=float(settings["eps"]), fused=True)

    def step(self, ids):
        from torch.nn import utils

        loss = peer_work.loss_of(self.model, ids)
        loss.backward()
        self.norm = utils.get_total_norm([p.grad for p in self.parameters]).full_tensor()
        utils.clip_grads_with_norm_(self.parameters, float(self.args.config["train"]["clip"]), self.norm)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    def grad_norm(self):
        return float(self.norm)

    def about(self):
        return {"peer": "fsdp", "optimizer": type(self.optimizer).__name__}


if __name__ == "__main__":
    peer_work.main(arguments(), Engine, {})
