#!/usr/bin/env python3
"""What transformers renders, encodes and masks for chat templates.

Usage: chat_oracle.py [--tokenizer FILE] [--make-tokenizer] [--short] -o CASES TEMPLATE...
       chat_oracle.py --characters tests/golden/tokenizers -o tests/golden/chat/characters.jsonl
       chat_oracle.py --check FOLDER      # FOLDER/expected.jsonl still says what transformers does

A case is a line of JSON: template (a path, or a name beside the cases), variables, then text, ids and mask, or error.
Where only the encoding fails, the case has a text alone.
Exits with 77 where transformers is not installed.
"""
import argparse
import datetime
import json
import os
import sys

try:
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    import tokenizers
    import transformers
    from transformers.utils import chat_template_utils
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)


class FixedTime(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(2026, 7, 4, 12, 0, 0)


SPECIAL = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
ADDED = ["<|im_start|>", "<|im_end|>", "<|user|>", "<|assistant|>", "<|end|>", "[INST]", "[/INST]", "<|eot_id|>"]
TOOLS = [{"type": "function", "function": {
    "name": "get_weather", "description": "The weather of a city.",
    "parameters": {"type": "object", "required": ["city"], "properties": {
        "city": {"type": "string", "description": "Name"}, "days": {"type": "integer", "enum": [1, 2]},
        "unit": {"type": ["string", "null"]}}}, "return": {"type": "string"}}}]


def message(role, content, **more):
    return {"role": role, "content": content, **more}


def call(arguments):
    return [{"id": "abcdefghi", "type": "function",
             "function": {"name": "get_weather", "arguments": arguments}}]


CONVERSATIONS = [
    ([message("user", "Hi"), message("assistant", "Hello!")], None),
    ([message("system", "Be brief."), message("user", " What is 2+2? "), message("assistant", " 4\n"),
      message("user", "und 3·3?"), message("assistant", "9 — neun ü\U0001F44D.")], None),
    ([message("user", "Think"), message("assistant", "<think>\nhm\n</think>\n\nyes"), message("user", "More"),
      message("assistant", "<think>\nwell\n</think>\n\nno")], None),
    ([message("system", "s"), message("user", "Weather?"),
      message("assistant", "", tool_calls=call(
          {"city": "Köln \"x\"", "days": 2, "f": 1.5, "n": None, "t": True, "l": [1, "a"]})),
      message("tool", "{\"t\": 3}", name="get_weather", tool_call_id="abcdefghi"),
      message("assistant", "3 degrees")], TOOLS),
    ([message("user", "a"), message("assistant", "b"), message("user", "c")], None),
    ([message("user", "x"), message("assistant", "y", reasoning_content="because"), message("user", "z"),
      message("assistant", "w", reasoning_content="  since ")], None),
    ([message("user", "Weather?"), message("assistant", None, tool_calls=call("{\"city\": \"Bonn\"}")),
      message("tool", "5", tool_call_id="abcdefghi"), message("assistant", "ok")], None),
    ([message("user", [{"type": "text", "text": "part one"}, {"type": "text", "text": " two"}]),
      message("assistant", [{"type": "text", "text": "ans"}])], None),
    ([message("assistant", "first"), message("user", "then")], None),
    ([message("user", "u"), message("user", "v"), message("assistant", "w")], None),
    ([message("developer", "dev"), message("user", "q"), message("assistant", "r")], None),
    ([message("system", "only")], None),
    ([], None),
]
SHORT = 6  # conversations of the cases that are kept


def make_tokenizer(path):
    byte_level = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = byte_level
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=330, initial_alphabet=byte_level.alphabet(), show_progress=False)
    tokenizer.train_from_iterator(["the weather of a city is the answer to the user", "think and answer"] * 9, trainer)
    tokenizer.add_special_tokens(["<|endoftext|>", *SPECIAL.values(), *ADDED])
    tokenizer.save(path)


def case_of(tokenizer, name, source, conversation, tools, prompt, special=SPECIAL):
    variables = {"messages": conversation, "tools": tools, "documents": None, "add_generation_prompt": prompt, **special}
    case = {"template": name, "variables": variables}
    try:
        (text,), spans = chat_template_utils.render_jinja_template(
            [[{key: value for key, value in each.items() if value is not None} for each in conversation]],
            tools=tools, chat_template=source, return_assistant_tokens_mask=True, add_generation_prompt=prompt, **special)
    except Exception as error:  # whatever the template or the library throws
        return {**case, "error": type(error).__name__}
    ends = [[len(text[:place].encode()) for place in span] for span in spans[0]]
    case = {**case, "text": text, "spans": ends}
    try:
        encoded = tokenizer.apply_chat_template(
            conversation, tools=tools, chat_template=source, return_assistant_tokens_mask=True,
            add_generation_prompt=prompt, return_dict=True)
    except Exception:  # apply_chat_template refuses empty conversations
        return case
    return {**case, "ids": list(encoded["input_ids"]),
            "mask": "".join(str(value) for value in encoded["assistant_masks"])}


def cases(tokenizer_file, templates, short):
    chat_template_utils.datetime = FixedTime
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=tokenizer_file, **SPECIAL)
    for path in templates:
        with open(path, encoding="utf-8") as stream:
            source = stream.read()
        name = os.path.basename(path) if short else os.path.abspath(path)
        for index, (conversation, tools) in enumerate(CONVERSATIONS[:SHORT] if short else CONVERSATIONS):
            for prompt in (False, True):
                if short and prompt != (index == 4):
                    continue
                case = case_of(tokenizer, name, source, conversation, tools, prompt)
                yield json.dumps(case, ensure_ascii=False, separators=(",", ":"))


# Tokenizers of characters put a mark before a text, and behind each special token.
SPANS = ("{{ bos_token }}{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{{ eos_token }}"
         "{% endgeneration %}{{ bos_token }}{% else %}[inst] {{ m.content }} [/inst]{{ SEPARATOR }}{% endif %}{% endfor %}")
CHARACTERS = ["llama2", "mistral", "gemma", "unigram_nfkc", "unigram_nmt"]


def character_cases(folder):
    """Texts with spans, ids and masks for tokenizers whose tokens do not spell the text byte for byte."""
    talks = [[message("user", "Hello there"), message("assistant", "Four. Five")],
             [message("user", "Und 3\n 4?"), message("assistant", " ja, neun"), message("user", "x"),
              message("assistant", "die Antwort\n\n1")]]
    for name in CHARACTERS:
        path = os.path.join(folder, name + ".json")
        special = {"bos_token": "<s>", "eos_token": "</s>"}
        tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=path, **special)
        for separator in ("", "</s>"):
            source = SPANS.replace("SEPARATOR", repr(separator))
            for talk in talks:
                if name.startswith("unigram"):  # their normalisers would change these texts
                    talk = [{**m, "content": m["content"].lower().replace("\n", "/")} for m in talk]
                case = case_of(tokenizer, name, source, talk, None, False, special)
                yield json.dumps({"tokenizer": name, **{key: case[key] for key in ("text", "spans", "ids", "mask")}},
                                 ensure_ascii=False, separators=(",", ":"))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--check")
    parser.add_argument("--tokenizer")
    parser.add_argument("--make-tokenizer", action="store_true")
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--characters", help="a folder of tokenizers: their cases alone")
    parser.add_argument("-o", "--output")
    parser.add_argument("templates", nargs="*")
    options = parser.parse_args()
    if options.check:
        folder = options.check
        with open(os.path.join(folder, "expected.jsonl"), encoding="utf-8") as stream:
            kept = stream.read().splitlines()
        names = sorted(name for name in os.listdir(folder) if name.endswith(".jinja"))
        found = list(cases(os.path.join(folder, "tokenizer.json"), [os.path.join(folder, n) for n in names], True))
        with open(os.path.join(folder, "characters.jsonl"), encoding="utf-8") as stream:
            kept += stream.read().splitlines()
        found += character_cases(os.path.join(folder, "../tokenizers"))
        differing = sum(a != b for a, b in zip(kept, found)) + abs(len(kept) - len(found))
        print(f"{len(found)} cases, {differing} differ")
        return 1 if differing else 0
    if options.make_tokenizer:
        make_tokenizer(options.tokenizer)
    with open(options.output, "w", encoding="utf-8") as stream:
        for line in character_cases(options.characters) if options.characters else cases(options.tokenizer, sorted(options.templates), options.short):
            stream.write(line + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
