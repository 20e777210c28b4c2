#!/usr/bin/env python3
"""Private members and functions of the classes in a C++ source, counted by a scanner that knows braces and no grammar.

Usage: class_sizes.py FILE... prints `file: class count`. Counted is each declaration that ends at the level of the class
while access is private; not counted are using, friend, static_assert, typedef and nested types. A line that declares
several members counts once.
"""
import re
import sys

NOISE = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'|^[ \t]*#(?:\\\n|[^\n])*',
                   re.S | re.M)
ACCESS = re.compile(r"\b(public|protected|private)\s*:(?!:)")
CLASS = re.compile(r"\b(class|struct)\s+(?:alignas\([^)]*\)\s*)?([A-Za-z_][\w:]*)(?:\s+final)?\s*(?::[^:].*)?$", re.S)
UNCOUNTED = re.compile(r"(using|friend|static_assert|typedef|enum)\b")
TYPE_NAMED = re.compile(r"(class|struct|union)\s[^({]*$")


class Scope:
    """What a `{` opens: the body of class `name`, or of anything else where that is None."""

    def __init__(self, head, name=None, access=None):
        self.head = head
        self.name = name
        self.access = access
        self.count = 0

    def declare(self, statement):
        statement = statement.strip()
        if statement.startswith("@"):
            self.access = statement[1:]
        elif self.name and self.access == "private" and statement and not UNCOUNTED.match(statement):
            self.count += not TYPE_NAMED.match(statement)


def opened(head):
    if re.search(r"\benum\b|=|\(", re.sub(r"alignas\([^)]*\)|template\s*<[^{};]*>", "", head)):
        return Scope(head)
    match = CLASS.search(head)
    return Scope(head, match.group(2), "private" if match.group(1) == "class" else "public") if match else Scope(head)


def after_brace(scope, outer, following):
    """What the statement of `outer` is once the braces of `scope` have closed; declares a function that ends here."""
    if scope.name:
        return "using" if following == ";" else ""  # a nested type, alone or with a member of that type
    if "(" not in scope.head or following in (",", "{"):  # an initialiser
        return scope.head + "{}"
    outer.declare(scope.head)
    return ""


def private_counts(text):
    """[(class, private declarations)] in the order in which the classes end."""
    text = ACCESS.sub(r"@\1;", NOISE.sub(" ", text))
    found, scopes, statement, parentheses = [], [Scope("")], "", 0
    for i, char in enumerate(text):
        parentheses += (char == "(") - (char == ")")
        if parentheses > 0 or char not in "{};":
            statement += char
        elif char == "{":
            scopes.append(opened(statement))
            statement = ""
        elif char == ";":
            scopes[-1].declare(statement)
            statement = ""
        elif len(scopes) > 1:
            scope = scopes.pop()
            if scope.name:
                found.append((scope.name, scope.count))
            statement = after_brace(scope, scopes[-1], text[i + 1:i + 200].lstrip()[:1])
    return found


def main(argv):
    for path in argv[1:]:
        with open(path, encoding="utf-8") as stream:
            for name, count in private_counts(stream.read()):
                print(f"{path}: {name} {count}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
