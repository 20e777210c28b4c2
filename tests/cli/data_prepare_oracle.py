"""`sluice data prepare` against writers of .bin/.idx that share no code with it.

The first writer is below and follows the format's description. The second is Megatron's own, where
megatron.core can be imported. Usage: data_prepare_oracle.py SLUICE_PROGRAM
"""

import json
import pathlib
import random
import struct
import subprocess
import sys
import tempfile

END_OF_TEXT = 256


def make_documents(count):
    """Texts of many lengths; some are empty, some have escapes and characters of all planes."""
    draw = random.Random(1)
    alphabet = ["a", "b", " ", "\n", "\t", '"', "\\", "é", "中", "😀", "\u2028"]
    lengths = [draw.choice([0, 1, 7, 100, 5000]) for _ in range(count)]
    return ["".join(draw.choices(alphabet, k=length)) for length in lengths]


def tokens_of(text, append_eod):
    ids = list(text.encode("utf-8"))
    return ids + [END_OF_TEXT] if ids and append_eod else ids


def described_files(documents):
    """The bytes of .bin and .idx: one sequence a document, none of an empty one."""
    full = [ids for ids in documents if ids]
    offsets, bounds, position = [], [0], 0
    for ids in full:
        offsets.append(position)
        position += 2 * len(ids)
    for ids in documents:
        bounds.append(bounds[-1] + (1 if ids else 0))
    bin_bytes = b"".join(struct.pack(f"<{len(ids)}H", *ids) for ids in full)
    idx = b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, 8, len(full), len(bounds))
    idx += struct.pack(f"<{len(full)}i", *(len(ids) for ids in full))
    idx += struct.pack(f"<{len(full)}q", *offsets)
    idx += struct.pack(f"<{len(bounds)}q", *bounds)
    return bin_bytes, idx


def megatron_files(folder, documents):
    """The same from Megatron's builder; None where it cannot be imported."""
    try:
        import numpy
        import torch
        from megatron.core.datasets.indexed_dataset import IndexedDatasetBuilder
    except ImportError:
        return None
    prefix = folder / "megatron"
    builder = IndexedDatasetBuilder(f"{prefix}.bin", dtype=numpy.uint16)
    for ids in documents:
        builder.add_document(torch.IntTensor(ids), [len(ids)] if ids else [])
    builder.finalize(f"{prefix}.idx")
    return pathlib.Path(f"{prefix}.bin").read_bytes(), pathlib.Path(f"{prefix}.idx").read_bytes()


def prepared_files(program, folder, name, inputs, options):
    prefix = folder / name
    command = [program, "data", "prepare", *map(str, inputs), "-o", str(prefix), *options]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    out = [pathlib.Path(f"{prefix}_text_document{ending}").read_bytes() for ending in (".bin", ".idx")]
    return tuple(out)


def main():
    program = sys.argv[1]
    texts = make_documents(400)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        inputs = [folder / "a.jsonl", folder / "b.jsonl"]
        for path, part in zip(inputs, (texts[:150], texts[150:])):
            lines = (json.dumps({"id": 1, "text": text}) + "\n" for text in part)
            path.write_text("".join(lines), encoding="utf-8")
        for append_eod in (False, True):
            documents = [tokens_of(text, append_eod) for text in texts]
            expected = described_files(documents)
            theirs = megatron_files(folder, documents)
            assert theirs in (None, expected), "Megatron's files are not as described"
            for threads in ("1", "2", "4"):
                options = ["--threads", threads] + (["--append-eod"] if append_eod else [])
                ours = prepared_files(program, folder, f"p{threads}{append_eod}", inputs, options)
                assert ours == expected, f"other bytes: {options}"
        prefix = folder / "p1True_text_document"
        cat = subprocess.run([program, "data", "cat", str(prefix)], check=True, capture_output=True)
        read = [json.loads(line)["text"] for line in cat.stdout.decode("utf-8").split("\n")[:-1]]
        assert read == texts, "cat does not give the texts back"
    print("equal" + ("" if theirs else "; megatron.core is not there, its builder was left out"))


if __name__ == "__main__":
    main()
