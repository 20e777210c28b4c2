#!/usr/bin/env python3
"""Conversations from the documentation of Python's standard library, one JSON object a line.

Usage: make_conversations.py OUT.jsonl [--longest CHARACTERS]

Each function, class and method with a docstring gives a question ("What does textwrap.dedent do?") and the docstring's
first paragraph as the answer. Sources are read, not imported. The order is that of the files' names.
"""
import argparse
import ast
import json
import os
import sysconfig

QUESTIONS = ("What does {} do?", "Explain {}.", "What is {} for?")
LEFT_OUT = {"test", "tests", "idlelib", "lib2to3", "site-packages", "dist-packages", "__pycache__"}


def sources(root):
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(name for name in folders if name not in LEFT_OUT)
        for name in sorted(files):
            if name.endswith(".py") and (name == "__init__.py" or not name.startswith("_")):
                path = os.path.join(folder, name)
                module = os.path.relpath(path, root)[:-3].replace(os.sep, ".")
                yield path, module.removesuffix(".__init__")


def documented(node, name):
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and not child.name.startswith("_"):
            own = f"{name}.{child.name}"
            text = ast.get_docstring(child)
            if text:
                yield own, " ".join(text.split("\n\n")[0].split())
            yield from documented(child, own)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("output")
    parser.add_argument("--longest", type=int, default=280, help="characters of an answer; longer ones are left out")
    options = parser.parse_args()
    count = 0
    with open(options.output, "w", encoding="utf-8") as out:
        for path, module in sources(sysconfig.get_path("stdlib")):
            try:
                with open(path, encoding="utf-8") as stream:
                    tree = ast.parse(stream.read())
            except (SyntaxError, UnicodeDecodeError, ValueError):
                continue
            for name, answer in documented(tree, module):
                if len(answer) > options.longest:
                    continue
                question = QUESTIONS[count % len(QUESTIONS)].format(name)
                messages = [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
                out.write(json.dumps({"messages": messages}) + "\n")
                count += 1
    print(f"{count} conversations in {options.output}")


if __name__ == "__main__":
    main()
