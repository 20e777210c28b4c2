#!/usr/bin/env python3
"""Rows of Parquet files against those of pyarrow, in every encoding and codec.

Usage: parquet_oracle.py JSON_ROWS         compares; ends with 77 (skipped) without pyarrow or the reader
       parquet_oracle.py --write           writes the small files of the test suite
"""
import decimal
import datetime
import json
import math
import os
import random
import subprocess
import sys
import tempfile

try:
    import pyarrow as pa
    import pyarrow.parquet as pq
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

SMALL_FILES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "fuzz", "corpus", "parquet")
PARTS = ["a", "the ", "\n", "\"", "\\", "\t", "\x01", "\u00e9", "\u65e5\u672c", "\U0001f600", "word ", "\u2028", "{", "x" * 300]


def texts(count, seed=1):
    source = random.Random(seed)
    return ["".join(source.choice(PARTS) for _ in range(source.randrange(0, 40))) for _ in range(count)]


def strings(count):
    rows = texts(count)
    return [None if i % 17 == 3 else rows[i // 4] if i % 4 else row for i, row in enumerate(rows)]


def tables():
    """(name, table, options of the writer)"""
    many = strings(5000)
    for codec in ("none", "snappy", "gzip", "zstd", "lz4", "brotli"):
        yield codec, pa.table({"text": many}), {"compression": codec}
    for name, kind in (("large", pa.large_string()), ("view", pa.string_view()), ("dictionary", pa.dictionary(pa.int32(), pa.string()))):
        yield name, pa.table({"text": pa.array(many, pa.string()).cast(kind)}), {}
    for encoding in ("PLAIN", "DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY"):
        yield encoding, pa.table({"text": many}), {"use_dictionary": False, "column_encoding": encoding}
    yield "pages", pa.table({"text": many}), {"data_page_version": "2.0", "data_page_size": 1000, "row_group_size": 777}
    yield "no_schema", pa.table({"text": many}), {"store_schema": False, "write_page_checksum": True}
    yield "no_rows", pa.table({"text": pa.array([], pa.string())}), {}
    yield "all_null", pa.table({"text": pa.array([None] * 10, pa.string())}), {}
    yield "types", pa.table({
        "text": texts(50), "id": list(range(50)), "score": [i / 7 for i in range(49)] + [math.inf], "ok": [i % 2 == 0 for i in range(50)],
        "half": pa.array([0.5 + i for i in range(50)], pa.float32()), "small": pa.array([-i for i in range(50)], pa.int8()),
        "big": pa.array([2 ** 64 - 1 - i for i in range(50)], pa.uint64()), "nothing": pa.nulls(50),
        "day": [datetime.date(2024, 1, 1)] * 50, "price": [decimal.Decimal("1.25")] * 50,
        "messages": [[{"role": "user", "content": text}] * (i % 3) for i, text in enumerate(texts(50, 2))],
        "nested": [None if i % 5 == 0 else {"a.b": {"c": [i, None]}} for i in range(50)]}), {}
    yield "bytes", pa.table({"text": ["a", "b"], "image": [b"\xff", b"x"], "deep": [{"bytes": b"1"}, None]}), {}


def plain(value):
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, (datetime.date, decimal.Decimal)):
        return str(value)
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list) else value


def has_bytes(kind):
    return pa.types.is_binary(kind) or any(has_bytes(kind.field(i).type) for i in range(kind.num_fields))


def run(rows, *arguments):
    done = subprocess.run([rows, *arguments], capture_output=True, timeout=60, check=False)
    if done.returncode == 77:
        print(f"skipped: {done.stderr.decode()}")
        sys.exit(77)
    return done


def compare(rows, folder):
    failures = 0
    for name, table, options in tables():
        path = os.path.join(folder, name + ".parquet")
        pq.write_table(table, path, **options)
        for columns in ([], ["text"]):
            done = run(rows, path, *columns)
            got = [json.loads(line) for line in done.stdout.decode().split("\n") if line]
            kept = [c for c in table.column_names if c in columns or (not columns and not has_bytes(table.schema.field(c).type))]
            want = plain(table.select(kept).to_pylist())
            if done.returncode != 0 or got != want:
                failures += 1
                print(f"{name} {columns}: {len(got)} rows, {len(want)} expected; {done.stderr.decode()}")
    return failures


def damage(rows, folder):
    """Every cut and many changed bytes end in rows or in an error, never in a signal."""
    failures = 0
    source = random.Random(3)
    for name in ("small", "several"):
        with open(os.path.join(SMALL_FILES, name + ".parquet"), "rb") as stream:
            whole = stream.read()
        trials = [whole[:cut] for cut in range(0, len(whole), 37)]
        for _ in range(100):
            trial = bytearray(whole)
            for _ in range(source.randrange(1, 4)):
                trial[source.randrange(len(trial))] = source.randrange(256)
            trials.append(bytes(trial))
        for trial in trials:
            path = os.path.join(folder, "damaged.parquet")
            with open(path, "wb") as stream:
                stream.write(trial)
            done = run(rows, path)
            refused = done.returncode == 1 and b"cannot read the Parquet file" in done.stderr
            if not refused and (done.returncode != 0 or len(trial) < len(whole)):
                failures += 1
                print(f"{name}: status {done.returncode}, {done.stderr.decode()}")
    return failures


def write_suite(folder):
    os.makedirs(folder, exist_ok=True)
    small = ["One line.", "", None, "Two\nlines, \"quoted\" \\ caf\u00e9 \U0001f600", "One line."]
    pq.write_table(pa.table({"id": [1, 2, 3, 4, 5], "text": small}), os.path.join(folder, "small.parquet"), compression="snappy")
    several = pa.table({"url": [f"https://example.org/{i}" for i in range(6)],
                        "text": pa.array([f"Document {i} of a file in three row groups." for i in range(6)], pa.large_string()),
                        "image": [b"\x00"] * 6, "messages": [[{"role": "user", "content": f"Question {i}"},
                                                             {"role": "assistant", "content": f"Answer {i}"}] for i in range(6)]})
    pq.write_table(several, os.path.join(folder, "several.parquet"), compression="zstd", row_group_size=2, write_page_checksum=True)
    invalid = pa.StringArray.from_buffers(2, pa.py_buffer(b"\0\0\0\0\2\0\0\0\4\0\0\0"), pa.py_buffer(b"ok\xff\xfe"))
    pq.write_table(pa.table({"text": invalid}), os.path.join(folder, "invalid_utf8.parquet"), compression="none", write_statistics=False)


def main(argv):
    if argv[1] == "--write":
        write_suite(SMALL_FILES)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        return 1 if compare(argv[1], folder) + damage(argv[1], folder) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
