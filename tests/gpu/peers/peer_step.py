#!/usr/bin/env python3
"""Training steps of a peer, PyTorch or DeepSpeed. Prints one JSON object: the steps' seconds, the memory reserved.

beside_peers.py runs it on the null GPU; on a card it times the peer (--wait).  The work is Sluice's: bf16 products, AdamW with
fp32 master weights and moments, the norm clipped at 1, no dropout.
"""
import argparse
import json
import os
import socket
import time

import peer_models
import torch

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


def torch_step(args, model):
    """fp32 weights under autocast, the fused AdamW."""
    if args.compile:
        model.compile_parts()
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, fused=True)

    def step(tokens):
        with torch.autocast("cuda", torch.bfloat16):
            loss = model(tokens)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def deepspeed_step(args, model):
    """DeepSpeed's engine with its own bf16 mode and the optimizer on the device or on the host."""
    import deepspeed  # pylint: disable=import-outside-toplevel
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    deepspeed.init_distributed("nccl")
    zero = {"stage": args.stage}
    if args.optimizer_on_host:
        zero["offload_optimizer"] = {"device": "cpu", "pin_memory": True}
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config={
        "train_micro_batch_size_per_gpu": args.micro_batch, "bf16": {"enabled": True}, "gradient_clipping": 1.0,
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


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--peer", choices=("torch", "deepspeed"), required=True)
    parser.add_argument("--model", choices=sorted(peer_models.MODELS), default="plain")
    parser.add_argument("--shape", type=json.loads, required=True, help="a model of ceilings.json, as JSON")
    parser.add_argument("--micro-batch", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--stage", type=int, default=0, help="ZeRO stage of DeepSpeed")
    parser.add_argument("--optimizer-on-host", action="store_true")
    parser.add_argument("--recompute", action="store_true")
    parser.add_argument("--compile", action="store_true", help="torch.compile of the blocks and the loss (model plain)")
    parser.add_argument("--no-numbers", action="store_true",
                        help="for the null GPU, which computes nothing: checks of values are made and taken for passed")
    parser.add_argument("--wait", action="store_true", help="a step's time ends when the card has finished, not when it has the work")
    args = parser.parse_args()
    if args.no_numbers and args.model == "transformers":
        answer_checks_of_rows()
    with torch.device("cuda"):  # one thread of the host would draw 1.5B weights in half a minute
        model = peer_models.MODELS[args.model](args.shape, args.recompute)
    model.train()
    step = (deepspeed_step if args.peer == "deepspeed" else torch_step)(args, model)
    batch = torch.randint(args.shape["vocab"], (args.micro_batch, args.shape["seq"])).pin_memory()
    seconds = []
    for _ in range(args.steps):
        begin = time.perf_counter()
        step(batch.to("cuda", non_blocking=True))
        if args.wait:
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begin)
    torch.cuda.synchronize()
    print("\n" + json.dumps({"seconds": seconds, "reserved": torch.cuda.max_memory_reserved()}))


if __name__ == "__main__":
    main()
