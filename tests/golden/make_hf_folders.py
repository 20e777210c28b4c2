"""Writes the small Hugging Face folders of tests/golden/hf, and what transformers computes with them.

    python tests/golden/make_hf_folders.py

It needs torch, transformers (4.x) and safetensors; README.md names the versions used. Each folder is one
family and one way in which such folders differ: where the names begin, how weights are stored, what the
keys of config.json are called. `logits.json` beside the weights has the fp32 logits of every position for
the tokens it lists, computed by transformers from the folder as it stands.
"""

import json
import pathlib
import shutil

import torch
import transformers
from safetensors.torch import load_file, save_file

HERE = pathlib.Path(__file__).resolve().parent / "hf"
SEQ = 13
SMALL = dict(hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4, vocab_size=37,
             max_position_embeddings=32, bos_token_id=1, eos_token_id=2)


def fill(model):
    """Weights large enough that every part of the model shows in the logits."""
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            is_norm = "norm" in name or ".ln_" in name
            parameter.copy_(1 + 0.2 * noise if is_norm and name.endswith("weight") else 0.3 * noise)


def build(family, **config):
    model = transformers.AutoModelForCausalLM.from_config(
        transformers.AutoConfig.for_model(family, **config), attn_implementation="eager")
    fill(model)
    return model


def rename(folder, change):
    """Every tensor of the folder's one file under another name, or more of them."""
    path = folder / "model.safetensors"
    tensors = load_file(path)
    save_file(change(tensors), path, metadata={"format": "pt"})


def edit_config(folder, change):
    path = folder / "config.json"
    config = json.loads(path.read_text())
    change(config)
    path.write_text(json.dumps(config, indent=1) + "\n")


def gpt2(folder):
    """Names without "transformer.", causal masks among the weights: the first gpt2 of all."""
    build("gpt2", n_embd=16, n_layer=2, n_head=2, n_positions=24, n_ctx=24, vocab_size=37, bos_token_id=36,
          eos_token_id=36).save_pretrained(folder)
    rename(folder, lambda old: {
        **{name.removeprefix("transformer."): tensor for name, tensor in old.items()},
        **{f"h.{i}.attn.bias": torch.ones(1, 1, 24, 24).tril() for i in range(2)},
    })


def llama(folder):
    """bf16 in shards, llama3 rotary scaling, a head of its own, grouped keys, no head_dim."""
    scaling = dict(rope_type="llama3", factor=4.0, low_freq_factor=1.0, high_freq_factor=2.0,
                   original_max_position_embeddings=12)
    model = build("llama", **SMALL, num_key_value_heads=2, rope_theta=500.0, rope_scaling=scaling)
    model.to(torch.bfloat16).save_pretrained(folder, max_shard_size="4KB")
    edit_config(folder, lambda config: config.pop("head_dim", None))


def mistral(folder):
    """fp16, a sliding window shorter than the sample, heads wider than hidden / heads, no prefix kept."""
    build("mistral", **SMALL, num_key_value_heads=2, head_dim=6, sliding_window=4, rope_theta=100.0).to(
        torch.float16).save_pretrained(folder)


def qwen2(folder):
    """A tied head stored a second time, keys of transformers 5."""
    build("qwen2", **SMALL, num_key_value_heads=1, tie_word_embeddings=True).save_pretrained(folder)
    rename(folder, lambda old: {**old, "lm_head.weight": old["model.embed_tokens.weight"].clone()})

    def new_keys(config):
        config["rope_parameters"] = {"rope_theta": config.pop("rope_theta"), "rope_type": "default"}
        config.pop("rope_scaling", None)
        config["dtype"] = config.pop("torch_dtype", config.get("dtype"))

    edit_config(folder, new_keys)


def write_logits(folder):
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager").eval()
    tokens = [(5 * i * i + 3 * i + 1) % 37 for i in range(SEQ)]
    with torch.no_grad():
        logits = model(torch.tensor([tokens])).logits[0]
    rows = [[float(f"{value:.9g}") for value in row] for row in logits.tolist()]
    (folder / "logits.json").write_text(json.dumps({"tokens": tokens, "logits": rows}) + "\n")


def main():
    torch.set_num_threads(1)
    for make in (gpt2, llama, mistral, qwen2):
        folder = HERE / make.__name__
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        make(folder)
        (folder / "generation_config.json").unlink(missing_ok=True)
        write_logits(folder)


if __name__ == "__main__":
    main()
