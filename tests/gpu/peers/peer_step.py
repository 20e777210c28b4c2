#!/usr/bin/env python3
"""Training steps of a peer: PyTorch, its FSDP2, or DeepSpeed. Prints one JSON object: the steps' seconds, and the memory reserved and allocated.

beside_peers.py runs it on the null GPU; on a card it times the peer (--wait).  The work is Sluice's: bf16 products, AdamW with
fp32 master weights and moments, the norm clipped at 1 (or not), no dropout.  A process is one rank: of a group where the environment has
torchrun's variables (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT), else alone.
"""
import argparse
import json
import os
import socket
import time

import peer_models
import torch
import torch.distributed as dist

LEARNING_RATE = 1e-4


def answered(check, answer):
    """`check` does its work and waits; its result is `answer`."""
    def checked(*args, **kwargs):
        check(*args, **kwargs)
        return answer

    return checked


def answer_checks_of_rows():
    """Transformers reads from the card whether a row holds several documents."""
    from transformers import masking_utils  # pylint: disable=import-outside-toplevel
    masking_utils.find_packed_sequence_indices = answered(masking_utils.find_packed_sequence_indices, None)


def answer_checks_of_gradients(optimizer):
    """DeepSpeed reads from the card whether a gradient or the norm is not finite, and then skips the step."""
    from deepspeed.runtime.zero import stage3, stage_1_and_2  # pylint: disable=import-outside-toplevel
    optimizer.has_overflow = answered(optimizer.has_overflow, False)
    for module in (stage3, stage_1_and_2):
        module.is_invalid_grad_norm = answered(module.is_invalid_grad_norm, False)


def answer_checks_of_ranks():
    """DeepSpeed's ranks compare their lists of parameters over the card: once, not in each step."""
    from deepspeed.runtime.zero import partition_parameters, partitioned_param_coordinator, stage3  # pylint: disable=import-outside-toplevel
    for module in (partition_parameters, partitioned_param_coordinator, stage3):
        module.assert_ints_same_as_other_ranks = lambda ints: None


def adamw(parameters):
    return torch.optim.AdamW(parameters, lr=LEARNING_RATE, fused=True)


def update_in_backward(parameters):
    """Without a clip: each parameter's update runs as soon as its gradient is there, and frees it, as PyTorch's tutorial has it."""
    optimizers = {parameter: adamw([parameter]) for parameter in parameters}

    def update(parameter):
        optimizers[parameter].step()
        optimizers[parameter].zero_grad(set_to_none=True)

    for parameter in parameters:
        parameter.register_post_accumulate_grad_hook(update)


def torch_step(args, model):
    """fp32 weights under autocast, the fused AdamW."""
    if args.compile:
        model.compile_parts()
    parameters = list(model.parameters())
    optimizer = update_in_backward(parameters) if args.no_clip else adamw(parameters)

    def step(tokens):
        with torch.autocast("cuda", torch.bfloat16):
            loss = model(tokens)
        loss.backward()
        if optimizer:
            torch.nn.utils.clip_grad_norm_(parameters, 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

    return step


def fsdp_step(args, model):
    """FSDP2: fp32 sharded weights, gathered and multiplied in bf16, gradients reduced in fp32, the fused AdamW.  Stage 3 gathers a block
    again for its backward.  The optimizer on the host means weights and gradients there too."""
    from torch.distributed import fsdp  # pylint: disable=import-outside-toplevel
    dist.init_process_group("cpu:gloo,cuda:nccl")  # tensors on the host have a norm too
    if args.compile:
        model.compile_parts()
    options = {"mesh": dist.init_device_mesh("cuda", (dist.get_world_size(),)),
               "mp_policy": fsdp.MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)}
    if args.optimizer_on_host:
        options["offload_policy"] = fsdp.CPUOffloadPolicy(pin_memory=True)
    for block in model.blocks:
        fsdp.fully_shard(block, reshard_after_forward=args.stage == 3, **options)
    fsdp.fully_shard(model, **options)  # by default the root is not gathered again: the backward begins with it
    parameters = list(model.parameters())
    torch.cuda.empty_cache()  # of the whole weights
    optimizer = update_in_backward(parameters) if args.no_clip else adamw(parameters)

    def step(tokens):
        model(tokens).backward()
        if optimizer:
            norm = torch.nn.utils.get_total_norm([parameter.grad for parameter in parameters]).full_tensor()
            torch.nn.utils.clip_grads_with_norm_(parameters, 1.0, norm)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

    return step


def deepspeed_step(args, model):
    """DeepSpeed's engine with its own bf16 mode and the optimizer on the device or on the host."""
    import deepspeed  # pylint: disable=import-outside-toplevel
    dist.init_process_group("nccl")  # DeepSpeed's call names the card, and then splits a communicator, which the null GPU does not
    deepspeed.init_distributed("nccl")
    if args.no_numbers:
        answer_checks_of_ranks()
    zero = {"stage": args.stage}
    if args.optimizer_on_host:
        zero["offload_optimizer"] = {"device": "cpu", "pin_memory": True}
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config={
        "train_micro_batch_size_per_gpu": args.micro_batch, "bf16": {"enabled": True}, "gradient_clipping": 0.0 if args.no_clip else 1.0,
        "optimizer": {"type": "AdamW", "params": {"lr": LEARNING_RATE} | ({} if args.optimizer_on_host else {"torch_adam": True, "fused": True})},
        "zero_optimization": zero, "steps_per_print": 1 << 30})
    if args.no_numbers:
        answer_checks_of_gradients(engine.optimizer)

    def step(tokens):
        engine.backward(engine(tokens))
        engine.step()
        if engine.skipped_steps:
            raise RuntimeError("DeepSpeed skipped a step: its gradients or their norm are not finite")

    return step


def be_a_rank():
    """Takes this rank's card; a rank alone gets torchrun's variables."""
    if "RANK" not in os.environ:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))


STEPS = {"torch": torch_step, "fsdp": fsdp_step, "deepspeed": deepspeed_step}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--peer", choices=STEPS, required=True)
    parser.add_argument("--model", choices=sorted(peer_models.MODELS), default="plain")
    parser.add_argument("--shape", type=json.loads, required=True, help="a model of ceilings.json, as JSON")
    parser.add_argument("--micro-batch", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--stage", type=int, default=0, help="ZeRO stage of DeepSpeed; FSDP2 has 2 and 3")
    parser.add_argument("--optimizer-on-host", action="store_true")
    parser.add_argument("--recompute", action="store_true")
    parser.add_argument("--no-clip", action="store_true", help="PyTorch and FSDP2 then update in the backward")
    parser.add_argument("--compile", action="store_true", help="torch.compile of the blocks and the loss (model plain)")
    parser.add_argument("--no-numbers", action="store_true",
                        help="for the null GPU, which computes nothing: checks of values are made and taken for passed")
    parser.add_argument("--wait", action="store_true", help="a step's time ends when the card has finished, not when it has the work")
    args = parser.parse_args()
    if args.peer == "fsdp" and args.stage not in (2, 3):
        parser.error(f"--stage {args.stage}: FSDP2 shards weights, gradients and optimizer; 2 keeps a step's gathered weights, 3 does not")
    be_a_rank()
    if args.no_numbers and args.model == "transformers":
        answer_checks_of_rows()
    with torch.device("cuda"):  # one thread of the host would draw 1.5B weights in half a minute
        model = peer_models.MODELS[args.model](args.shape, args.recompute)
    model.train()
    step = STEPS[args.peer](args, model)
    batch = torch.randint(args.shape["vocab"], (args.micro_batch, args.shape["seq"])).pin_memory()
    seconds = []
    for _ in range(args.steps):
        begin = time.perf_counter()
        step(batch.to("cuda", non_blocking=True))
        if args.wait:
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begin)
    torch.cuda.synchronize()
    print("\n" + json.dumps({"seconds": seconds, "reserved": torch.cuda.max_memory_reserved(), "allocated": torch.cuda.max_memory_allocated()}))
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
