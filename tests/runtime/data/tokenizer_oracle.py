#!/usr/bin/env python3
"""Ids of our tokenizers against those of `tokenizers` and `sentencepiece`, on hard strings.

Usage: tokenizer_oracle.py ENCODE_RECORDS [STRINGS [KIND...]]
       tokenizer_oracle.py --write    writes tests/golden/tokenizers and seeds of the fuzzers

Trains a small tokenizer of each kind with the packages themselves, writes the file that they write, and compares the ids of
STRINGS random strings (default 2000). The reference is tokenizers 0.23.3; 0.22.1 decodes some spaces of Llama 2's pieces otherwise. Ends with 77 (skipped) where a package is missing, with 1 where ids or texts differ.
"""
import io
import json
import os
import random
import subprocess
import sys
import tempfile

try:
    import sentencepiece
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

TESTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
GOLDEN = os.path.join(TESTS, "golden", "tokenizers")
SIZES = {"bpe": 2000, "unigram": 1500, "alphabet": 150}  # of vocabularies
CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|"
LLAMA3 = CONTRACTION + r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
PARTS = ["'s", "'LL", "don't", "WE'RE", " ", "  ", "     ", "\n", "\n\n", "\r\n", "\t", "\u00a0", "\u3000", "\u2028", "a", "B", "the ", " the",
         "Hello", "World", "CamelCase", "snake_case", "x1", "12345", "3.14", "2024", "\u0661\u0662", "\u00b2", "\u00bd", "!?", "...", "//", "(", "){", "_", "\u2581",
         "\u2581\u2581", "e\u0301", "\u00e9", "\u00df", "\u0130", "I\u0307", "\u1e9b\u0323", "\ufb01", "\u2460", "\uff21", "\u212b", "\u0928\u093f", "\u0e01\u0e33",
         "\u65e5\u672c\u8a9e", "\u3042\u3044", "\u304b\u3099", "\uac00", "\u1100\u1161\u11a8", "\u0416\u0438", "\u05d0\u05b0", "\u0627\u0644", "\U0001f44d\U0001f3fd",
         "\U0001f468\u200d\U0001f469\u200d\U0001f467", "\U0001d400", "\u200b", "\ufeff", "\u00ad", "\u0001", "\u007f", "<s>", "</s>", "<unk>", "<|end|>", "<tool>",
         "word", "<0x41>", "\ufffd", "def f(x):\n    return x", "\u201cquoted\u201d", "na\u00efve", "caf\u00e9"]


def corpus():
    """Python's own sources, and a line of each other script."""
    folder = os.path.dirname(os.__file__)
    texts = []
    for name in sorted(os.listdir(folder))[:60]:
        if name.endswith(".py"):
            with open(os.path.join(folder, name), encoding="utf-8") as stream:
                texts.append(stream.read())
    source = random.Random(1)
    texts += ["".join(source.choice(PARTS[40:]) for _ in range(50)) for _ in range(40)]
    return texts


def hard_strings(count, texts, longest=16):
    source = random.Random(7)
    words = " ".join(texts[:10]).split(" ")
    strings = ["", " ", "\n", "\u2581", "<s>"]
    while len(strings) < count:
        parts = [source.choice(PARTS) if source.random() < 0.7 else " " + source.choice(words)
                 for _ in range(source.randrange(1, longest))]
        strings.append("".join(parts).replace("\0", ""))
    return strings[:count]


def bpe(texts, size, special=("<|end|>",), **model):
    tokenizer = Tokenizer(models.BPE(**model))
    return tokenizer, trainers.BpeTrainer(vocab_size=size, special_tokens=list(special), show_progress=False)


def byte_level(texts, pattern=None, normalizer=None, prefix=False, **model):
    tokenizer, trainer = bpe(texts, SIZES["bpe"], **model)
    level = pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=pattern is None)
    split = [] if pattern is None else [pre_tokenizers.Split(Regex(pattern), "isolated")]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(split + [level])
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.decoder = decoders.ByteLevel()
    trainer.initial_alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def fallback_bpe(texts, normalizer, decoder, **model):
    """Llama 2's and Gemma's kind: characters, and bytes for what has no piece."""
    special = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256)]
    tokenizer, trainer = bpe(texts, SIZES["bpe"], special, unk_token="<unk>", fuse_unk=True, byte_fallback=True, **model)
    trainer.limit_alphabet = SIZES["alphabet"]
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    # Words for training only.
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")
    tokenizer.train_from_iterator(texts, trainer)
    fields = json.loads(tokenizer.to_str())
    fields["pre_tokenizer"] = None
    fields["added_tokens"] = [token for token in fields["added_tokens"] if not token["content"].startswith("<0x")]
    tokenizer = Tokenizer.from_str(json.dumps(fields))
    tokenizer.decoder = decoder
    return tokenizer


LLAMA2_DECODER = [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]


def llama2(texts):
    return fallback_bpe(texts, normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]),
                        decoders.Sequence(LLAMA2_DECODER))


def gemma(texts):
    tokenizer = fallback_bpe(texts, normalizers.Replace(" ", "\u2581"), decoders.Sequence(LLAMA2_DECODER[:3]))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    return tokenizer


def mistral(texts):
    tokenizer = fallback_bpe(texts, None, decoders.Sequence(LLAMA2_DECODER))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    return tokenizer


def unigram(texts, normalizer, fallback=False):
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.train_from_iterator(texts, trainers.UnigramTrainer(vocab_size=SIZES["unigram"], special_tokens=["<s>", "</s>", "<unk>"], unk_token="<unk>", show_progress=False))
    return tokenizer


def with_added(tokenizer):
    tokenizer.add_special_tokens([AddedToken("<tool>", lstrip=True, rstrip=True), AddedToken("<s>")])
    tokenizer.add_tokens([AddedToken("word", single_word=True), AddedToken("Hello", normalized=True), AddedToken("caf\u00e9", normalized=False)])
    return tokenizer


KINDS = {
    "gpt2": lambda t: byte_level(t),
    "gpt2_prefix": lambda t: byte_level(t, prefix=True),
    "llama3": lambda t: byte_level(t, LLAMA3, ignore_merges=True),
    "qwen3": lambda t: with_added(byte_level(t, QWEN, normalizers.NFC())),
    "llama2": lambda t: with_added(llama2(t)),
    "mistral": lambda t: mistral(t),
    "gemma": lambda t: with_added(gemma(t)),
    "unigram_nfkc": lambda t: unigram(t, normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase(), normalizers.Replace(Regex(" {2,}"), " ")])),
    "unigram_nmt": lambda t: unigram(t, normalizers.Sequence([normalizers.Nmt(), normalizers.NFD(), normalizers.StripAccents(), normalizers.Strip()])),
}


def spm(texts, **options):
    model = io.BytesIO()
    options = {"vocab_size": SIZES[options["model_type"]], **options}
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter([line for text in texts for line in text.split("\n") if line]), model_writer=model,
                                             minloglevel=2, num_threads=1, **options)
    return model.getvalue()


SENTENCEPIECE = {
    "spm_unigram": dict(model_type="unigram", user_defined_symbols=["<tool>"]),
    "spm_bpe_llama2": dict(model_type="bpe", byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False,
                           split_digits=True, character_coverage=0.99),
    "spm_bpe_gemma": dict(model_type="bpe", byte_fallback=True, normalization_rule_name="identity", add_dummy_prefix=False,
                          remove_extra_whitespaces=False, user_defined_symbols=["\u2581\u2581", "\n", "\t", "<tool>"]),
    "spm_unigram_fallback": dict(model_type="unigram", byte_fallback=True, normalization_rule_name="nfkc_cf", character_coverage=0.99),
}


def ours(program, spec, strings):
    done = subprocess.run([program, spec], input=b"".join(s.encode() + b"\0" for s in strings), capture_output=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{spec}: {done.stderr.decode()}")
    rows = [line.split("\t") for line in done.stdout.decode().splitlines()]
    return [[int(i) for i in ids.split()] for ids, _ in rows], [bytes.fromhex(text) for _, text in rows]


def compare(name, strings, theirs, texts, our):
    ids, decoded = our
    wrong = 0
    for string, expected, text, got, back in zip(strings, theirs, texts, ids, decoded):
        bad_text = text is not None and "\ufffd" not in text and text.encode() != back
        if expected != got or bad_text:
            wrong += 1
            if wrong <= 3:
                print(f"{name}: {string!r}\n  expected {expected} {text!r}\n  got      {got} {back!r}")
    print(f"{name}: {len(strings)} strings, {wrong} differ", flush=True)
    return wrong


def write_golden():
    """Small tokenizers of the text in golden/tokenizers, hard strings (hexadecimal), their ids."""
    SIZES.update(bpe=440, unigram=420, alphabet=60)
    with open(os.path.join(GOLDEN, "text.txt"), encoding="utf-8") as stream:
        texts = stream.read().split("\n\n")
    strings = hard_strings(150, texts, 8)
    with open(os.path.join(GOLDEN, "strings.txt"), "w", encoding="ascii") as stream:
        stream.writelines(string.encode().hex() + "\n" for string in strings)

    def write(name, suffix, content, ids):
        with open(os.path.join(GOLDEN, name + suffix), "wb") as out:
            out.write(content)
        with open(os.path.join(GOLDEN, name + ".ids"), "w", encoding="ascii") as out:
            out.writelines(" ".join(map(str, row)) + "\n" for row in ids)

    for name, make in KINDS.items():
        tokenizer = make(texts)
        write(name, ".json", tokenizer.to_str().encode(), [tokenizer.encode(s, add_special_tokens=False).ids for s in strings])
    with tempfile.NamedTemporaryFile("w", suffix=".tsv") as rules:  # the whole table of NFKC has 240 kB
        rules.write("FF21\t41\nFB01\t66 69\n2460\t31\n65 301\tE9\n3000\t20\n9\t20\n")
        rules.flush()
        for name, options in SENTENCEPIECE.items():
            if "normalization_rule_name" not in options or options["normalization_rule_name"] == "nfkc_cf":
                options = {**options, "normalization_rule_name": "", "normalization_rule_tsv": rules.name}
            model = spm(texts, hard_vocab_limit=options["model_type"] == "bpe", **options)
            processor = sentencepiece.SentencePieceProcessor(model_proto=model)
            write(name, ".model", model, [processor.encode(s) for s in strings])
            if name != "spm_bpe_gemma":
                write_seed("sentencepiece", name, spm(texts[:1], hard_vocab_limit=False, **{**options, "byte_fallback": False,
                                                                                           "vocab_size": 40}))
    SIZES.update(unigram=40)
    write_seed("tokenizer", "unigram", KINDS["unigram_nfkc"](texts[:1]).to_str().encode())
    return 0


def write_seed(target, name, content):
    folder = os.path.join(TESTS, "fuzz", "corpus", target)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, name), "wb") as out:
        out.write(content)


def main():
    if sys.argv[1] == "--write":
        return write_golden()
    program = sys.argv[1]
    texts = corpus()
    strings = hard_strings(int(sys.argv[2]) if len(sys.argv) > 2 else 2000, texts)
    chosen = sys.argv[3:]
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, make in KINDS.items():
            if chosen and name not in chosen:
                continue
            tokenizer = make(texts)
            path = os.path.join(folder, name + ".json")
            tokenizer.save(path)
            theirs = [tokenizer.encode(s, add_special_tokens=False).ids for s in strings]
            back = [tokenizer.decode(ids, skip_special_tokens=False) for ids in theirs]
            wrong += compare(name, strings, theirs, back, ours(program, path, strings))
        for name, options in SENTENCEPIECE.items():
            if chosen and name not in chosen:
                continue
            model = spm(texts, **options)
            path = os.path.join(folder, name + ".model")
            with open(path, "wb") as stream:
                stream.write(model)
            processor = sentencepiece.SentencePieceProcessor(model_proto=model)
            theirs = [processor.encode(s) for s in strings]
            wrong += compare(name, strings, theirs, [None] * len(strings), ours(program, path, strings))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
