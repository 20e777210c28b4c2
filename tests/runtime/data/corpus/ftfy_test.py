#!/usr/bin/env python3
"""Repairs texts by the program and by ftfy and compares. Usage: ftfy_test.py REPAIR_LINES [COUNT]

Texts: words of several languages through one or two wrong code pages, spaces for no-break spaces, lost bytes,
character references, odd characters. Exit status 77 where ftfy is missing.
"""
import html.entities
import json
import random
import subprocess
import sys

try:
    import ftfy
except ImportError:
    print("ftfy is missing: pip install ftfy")
    sys.exit(77)

WORDS = ("voilà naïve café größer Übermut señor niño façade à l’hôtel “quoted” it’s — dash … 20 °C £5 €7 ½ ² "
         "żółw gęś Łódź český kůň Ελλάδα λόγος Россия мир українська עברית العربية ہندی हिन्दी 日本語 中文 한국어 😀 👍🏽 ™ © "
         "ﬁn ﬂuﬀy Ａｂｃ ｶﾞ plain text and more of it ÃÂ Ã Â â€ ï»¿ ¿que? «oui» naïveté às àquele œuvre ŒUVRE √∂ ≈° ‚Äì вЂ™ "
         "┌─┐ ░▒▓ ¯\\_(ツ)_/¯ ( ͡° ͜ʖ ͡°) Å ångström Ångström").split(" ")
PAGES = ["latin-1", "sloppy-windows-1252", "sloppy-windows-1251", "sloppy-windows-1250", "sloppy-windows-1253",
         "sloppy-windows-1254", "sloppy-windows-1257", "iso-8859-2", "macroman", "cp437"]
NAMES = sorted(html.entities.html5)
ODD = ["\r\n", "\r", "\u2028", "\u2029", "\x85", "\x1b[31;1m", "\x1b[m", "\x00", "\x07", "\x7f", "\ufeff", "\ufffd", "\ufffc",
       "\x80", "\x93", "\x9d", "\xa0", "\x1a", "?", " ", "\n", "\t", "e\u0301", "\u212b", "&", ";", "<", "&amp;amp;"]


def misread(text, page, rng):
    raw = text.encode("utf-8")
    if rng.random() < 0.2:
        raw = raw.replace(b"\xa0", b" ")
    if rng.random() < 0.1:
        raw = b"".join(bytes([b]) if rng.random() < 0.97 or b < 128 else b"?" for b in raw)
    out = raw.decode(page, errors="replace")
    return out.replace("\x9d", "\ufffd") if rng.random() < 0.1 else out


def reference(rng):
    kind = rng.randrange(5)
    if kind == 0:
        return "&#%d;" % rng.choice([rng.randrange(300), rng.randrange(0x11FFFF), 59, 0xD800, 0xFFFE])
    if kind == 1:
        return "&#x%x;" % rng.choice([rng.randrange(300), rng.randrange(0x11FFFF)])
    name = rng.choice(NAMES)
    return "&" + (name.upper() if kind == 2 else name)


def make_text(rng):
    parts = []
    for _ in range(rng.randrange(1, 12)):
        part = " ".join(rng.choice(WORDS) for _ in range(rng.randrange(1, 4)))
        for _ in range(rng.choice([0, 0, 1, 1, 2])):
            part = misread(part, rng.choice(PAGES), rng)
        parts.append(part)
        if rng.random() < 0.2:
            parts.append(reference(rng))
        if rng.random() < 0.3:
            parts.append(rng.choice(ODD))
    text = rng.choice(["", " ", " "]).join(parts)
    return misread(text, rng.choice(PAGES), rng) if rng.random() < 0.3 else text


def make_noise(rng):
    page = rng.choice(PAGES)
    return bytes(rng.randrange(256) for _ in range(rng.randrange(1, 12))).decode(page, errors="replace")


def main():
    rng = random.Random(18)
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 20000
    texts = [make_noise(rng) if i % 4 == 3 else make_text(rng) for i in range(count)]
    lines = "".join(json.dumps(text, ensure_ascii=False) + "\n" for text in texts)
    result = subprocess.run([sys.argv[1]], input=lines.encode("utf-8", "surrogatepass"), stdout=subprocess.PIPE, check=True)
    repaired = [json.loads(line) for line in result.stdout.decode("utf-8").split("\n")[:-1]]
    assert len(repaired) == len(texts), (len(repaired), len(texts))
    wrong = 0
    for text, mine in zip(texts, repaired):
        theirs = ftfy.fix_text(text)
        if mine != theirs:
            wrong += 1
            if wrong <= 20:
                print(f"text {text!r}\n  repaired {mine!r}\n  ftfy     {theirs!r}")
    changed = sum(a != b for a, b in zip(texts, repaired))
    print(f"{count} texts, {changed} changed, {wrong} repaired otherwise than by ftfy {ftfy.__version__}")
    sys.exit(1 if wrong else 0)


main()
