"""Makes a Hugging Face model compute in fp64 throughout.

Model.double() is not enough: RMSNorm, the rotary angles and the attention's softmax are pinned to fp32 in the model
code.  lift_module replaces the first two in one module, all_fp64 the third while it is entered.
"""

import contextlib
import math
from unittest import mock

import torch
import torch.nn.functional as F


def inverse_frequencies(config):
    """Rotary frequencies in double, with the llama3 scaling where the configuration asks for it."""
    dim = config.hidden_size // config.num_attention_heads
    freqs = [config.rope_theta ** (-2.0 * j / dim) for j in range(dim // 2)]
    scaling = getattr(config, "rope_scaling", None)
    if not scaling:
        return torch.tensor(freqs, dtype=torch.float64)
    original, factor = scaling["original_max_position_embeddings"], scaling["factor"]
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    scaled = []
    for freq in freqs:
        turns = original * freq / (2 * math.pi)  # full turns within the original context
        keep = min(1.0, max(0.0, (turns - low) / (high - low)))
        scaled.append(keep * freq + (1 - keep) * freq / factor)
    return torch.tensor(scaled, dtype=torch.float64)


def lift_module(module):
    name = type(module).__name__
    if name.endswith("RMSNorm"):

        def rms_norm(x):
            return module.weight * x * torch.rsqrt(x.square().mean(-1, keepdim=True) + module.variance_epsilon)

        module.forward = rms_norm
    elif name.endswith("RotaryEmbedding"):
        freqs = inverse_frequencies(module.config)
        torch.testing.assert_close(module.inv_freq.double(), freqs, rtol=1e-6, atol=0)

        def rotary(x, position_ids):
            angles = position_ids[..., None].double() * freqs
            angles = torch.cat((angles, angles), -1)
            return angles.cos(), angles.sin()

        module.forward = rotary


@contextlib.contextmanager
def all_fp64():
    softmax = F.softmax

    def wide_softmax(x, dim=None, dtype=None, **kwargs):
        return softmax(x, dim=dim, dtype=torch.float64, **kwargs)

    with mock.patch.object(F, "softmax", wide_softmax):
        yield
