"""What a run of sluice starts from, in Python: its initial weights and its rows of tokens.

Both are functions of the seed alone (kernels/cpu/philox.hpp, runtime/data/sample_order.hpp, and the cache file of
runtime/data/README.md), so another program can train on the same numbers without taking anything from the run but
the resolved config.yaml of its folder.  Weights agree to the last bit or the one before it: numpy's logarithm and
cosine are not the kernel's.
"""

import math
import pathlib
import struct

import numpy as np

MASK64 = (1 << 64) - 1
CHUNK_BLOCKS = 1 << 18  # of 4 elements: keeps the temporaries of a draw below 50 MB


def philox(seed, stream, blocks):
    """Philox4x32-10 of the counters (block, stream): four arrays of 32-bit words, held as uint64."""
    low = np.uint64(0xFFFFFFFF)
    shift = np.uint64(32)
    x0, x1 = blocks & low, blocks >> shift
    x2 = np.full_like(blocks, stream & 0xFFFFFFFF)
    x3 = np.full_like(blocks, stream >> 32)
    k0, k1 = seed & 0xFFFFFFFF, seed >> 32
    for _ in range(10):
        a, b = x0 * np.uint64(0xD2511F53), x2 * np.uint64(0xCD9E8D57)
        x0, x1 = (b >> shift) ^ x1 ^ np.uint64(k0), b & low
        x2, x3 = (a >> shift) ^ x3 ^ np.uint64(k1), a & low
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return x0, x1, x2, x3


def hash_name(name):
    """The stream of a parameter."""
    h = 0xCBF29CE484222325
    for byte in name.encode():
        h = (h ^ byte) * 0x100000001B3 & MASK64
    h = (h ^ h >> 33) * 0xFF51AFD7ED558CCD & MASK64
    h = (h ^ h >> 33) * 0xC4CEB9FE1A85EC53 & MASK64
    return h ^ h >> 33


def box_muller(a, b):
    radius = np.sqrt(-2 * np.log((a + np.uint64(1)) * 2.0**-32))
    angle = b * (2 * math.pi * 2.0**-32)
    return radius * np.cos(angle), radius * np.sin(angle)


def normal(seed, name, count, std):
    """float32[count]: the initial values of the parameter `name`."""
    out = np.empty((count + 3) // 4 * 4, np.float32)
    for first in range(0, len(out) // 4, CHUNK_BLOCKS):
        blocks = np.arange(first, min(first + CHUNK_BLOCKS, len(out) // 4), dtype=np.uint64)
        w = philox(seed, hash_name(name), blocks)
        z = np.stack(box_muller(w[0], w[1]) + box_muller(w[2], w[3]), axis=1)
        out[4 * first : 4 * (first + len(blocks))] = (z * float(np.float32(std))).ravel()
    return out[:count]


def _mix(value):
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 & MASK64
    value = (value ^ value >> 27) * 0x94D049BB133111EB & MASK64
    return value ^ value >> 31


class SampleOrder:
    """A permutation of the samples for each epoch."""

    GOLDEN = 0x9E3779B97F4A7C15

    def __init__(self, samples, seed):
        self.samples = samples
        self.seed = seed
        self.half_bits = 1
        while self.half_bits < 31 and 1 << 2 * self.half_bits < samples:
            self.half_bits += 1

    def draw(self, number):
        epoch, value = divmod(number, self.samples)
        mask = (1 << self.half_bits) - 1
        key = _mix((_mix((self.seed + self.GOLDEN) & MASK64) + epoch * self.GOLDEN) & MASK64)
        while True:
            left, right = value >> self.half_bits, value & mask
            for step in range(8):
                left, right = right, left ^ (_mix((key + (right << 8) + step + 1) & MASK64) & mask)
            value = left << self.half_bits | right
            if value < self.samples:
                return value


class TokenRows:
    """The rows of a run whose whole text trains (data.split: [1, 0])."""

    def __init__(self, cache_dir, seq, seed):
        caches = sorted(pathlib.Path(cache_dir).glob("*.tokens"))
        if len(caches) != 1:
            raise SystemExit(
                f"{cache_dir} holds {len(caches)} token caches, so which one the run read is unknown; "
                "give the run a data.cache_dir of its own"
            )
        with open(caches[0], "rb") as cache:
            magic, version, width, _, tokens, _ = struct.unpack("<8sIIqqq", cache.read(40))
        if magic != b"SLUICETK" or version != 1:
            raise SystemExit(f"{caches[0]} is no token cache of version 1")
        kind = {2: "<u2", 4: "<u4"}[width]
        self.tokens = np.memmap(caches[0], kind, "r", offset=96, shape=(tokens,))
        self.seq = seq
        self.order = SampleOrder((tokens - 1) // seq, seed)

    def rows(self, step, global_batch, first_row, count):
        """int64[count, seq + 1]: rows [first_row, first_row + count) of optimizer step `step` (from 1)."""
        first_draw = (step - 1) * global_batch + first_row
        starts = [self.order.draw(first_draw + row) * self.seq for row in range(count)]
        return np.stack([self.tokens[s : s + self.seq + 1] for s in starts]).astype(np.int64)
