"""What is public, read from the source: ``python -m tests.public_api`` writes it into docs/reference/public-api.md.

Signatures are those of the source and not those at runtime, which differ from one Python to the next.
"""

import ast
import inspect
import textwrap
from collections.abc import Iterator, Set
from importlib import import_module
from types import ModuleType
from typing import Any, TypeAlias

from .projects import ROOT

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef

PAGE = ROOT / "docs/reference/public-api.md"
MODULES = ("", "exceptions", "control", "testing", "models", "throughput", "slots", "middleware")
RETURNED = {"tasks.calls": ("TaskCall",), "tasks.workflows": ("Workflow",), "patterns.slot_cycle": ("Slot", "Turn")}
MADE = {"ClaimedJob", "JobContext", "TaskCall", "Workflow", "Slot", "Turn"}  # by the queue, not by a project
DJANGOS = ("TaskContext", "TaskResult", "TaskResultStatus")  # handed on, for a project that runs on 5.2 and on 6.x
INNER = {"Queue": {"options"}, "Turn": {"of"}, "Workflow": {"task", "parts", "ends", "options", "call", "of_first"}}
WIDTH = 112


def main() -> None:
    """Put what is public now into the page."""
    PAGE.write_text(written(PAGE.read_text()))


def written(page: str) -> str:
    """Return the page with what is public now; each block begins with the name of its module."""
    for name, lines in blocks().items():
        begin, rest = page.split(f"```text\n{name}\n", 1)
        page = f"{begin}```text\n{name}\n" + "\n".join(lines) + "\n```" + rest.split("```", 1)[1]
    return page


def blocks() -> dict[str, list[str]]:
    """Return what is public, by module; at last the classes of what calls return."""
    found = {}
    for name in MODULES:
        module = import_module(f"django_vtqueue.{name}".rstrip("."))
        names = sorted(module.__all__, key=str.lower)
        found[module.__name__] = [line for each in names for line in described(module, each)]
    found["what calls return"] = [
        line
        for name, classes in RETURNED.items()
        for each in classes
        for line in described(import_module(f"django_vtqueue.{name}"), each)
    ]
    return {name: [part for line in lines for part in wrapped(line)] for name, lines in found.items()}


def wrapped(line: str) -> list[str]:
    indent = " " * (len(line) - len(line.lstrip()) + 8)
    return textwrap.wrap(f"    {line}", WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def described(module: ModuleType, name: str) -> Iterator[str]:
    found = getattr(module, name)
    if name in DJANGOS:
        yield f"{name}  # Django's"
    elif module.__name__ == "django_vtqueue" and issubclass_of_exception(found):
        yield f"{name}  # see django_vtqueue.exceptions"
    elif inspect.isclass(found):
        yield from class_lines(found)
    elif callable(found):
        yield signature_of(found, name)
    else:
        yield name


def issubclass_of_exception(found: Any) -> bool:
    return inspect.isclass(found) and issubclass(found, BaseException)


def class_lines(found: type) -> Iterator[str]:
    """Yield a class, and what it defines itself: methods, properties, and the fields of a dataclass."""
    bases = ", ".join(base.__name__ for base in found.__bases__ if base is not object)
    [node] = ast.parse(textwrap.dedent(inspect.getsource(found))).body
    assert isinstance(node, ast.ClassDef)
    yield f"class {found.__name__}({bases})" if bases else f"class {found.__name__}"
    from django.db.models import Model

    if issubclass(found, Model):
        return  # its columns are the table's: see docs/reference/models.md
    inner = INNER.get(found.__name__, set())
    for member in members_of(node, inner):
        if isinstance(member, str):
            yield f"    {member}"
        elif is_property(member):
            yield f"    {member.name}: {ast.unparse(member.returns) if member.returns else 'Any'}"
        elif member.name != "__init__" or found.__name__ not in MADE:
            yield f"    {shown(member, bound=True)}"


def members_of(node: ast.ClassDef, inner: Set[str]) -> "list[str | Function]":
    """Return the public members of a class: attributes, and methods; of an overloaded one the last definition."""
    members: dict[str, str | Function] = {}
    for member in node.body:
        if isinstance(member, ast.AnnAssign):
            name = ast.unparse(member.target)
            members[name] = f"{name}: {ast.unparse(member.annotation)}".replace("'", "")
        elif isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef):
            members[member.name] = member
            if member.name == "__init__":
                members |= {name: name for name in assigned(member)}
    return [it for name, it in members.items() if (name[0] != "_" or name == "__init__") and name not in inner]


def assigned(init: Function) -> Iterator[str]:
    """Yield the attributes that are set when an object is made."""
    for node in ast.walk(init):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == "self":
            yield node.attr


def is_property(member: Function) -> bool:
    return any(ast.unparse(decorator) in ("property", "cached_property") for decorator in member.decorator_list)


def signature_of(function: Any, name: str) -> str:
    """Return the signature of a function, as its source has it."""
    [node] = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(function)))).body
    assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    assert node.name == name
    return shown(node)


def shown(node: Function, *, bound: bool = False) -> str:
    kind = "async " if isinstance(node, ast.AsyncFunctionDef) else ""
    returned = f" -> {ast.unparse(node.returns)}" if node.returns and node.name != "__init__" else ""
    parameters = list(parameters_of(node.args))[bound:]
    return f"{kind}{node.name}({', '.join(parameters)}){returned}".replace("'", '"')


def parameters_of(given: ast.arguments) -> Iterator[str]:
    positional = [*given.posonlyargs, *given.args]
    defaults = [None] * (len(positional) - len(given.defaults)) + given.defaults
    for number, (each, default) in enumerate(zip(positional, defaults, strict=True), start=1):
        yield parameter(each, default)
        if number == len(given.posonlyargs):
            yield "/"
    if given.vararg or given.kwonlyargs:
        yield f"*{parameter(given.vararg, None) if given.vararg else ''}"
    for each, default in zip(given.kwonlyargs, given.kw_defaults, strict=True):
        yield parameter(each, default)
    if given.kwarg:
        yield f"**{parameter(given.kwarg, None)}"


def parameter(given: ast.arg, default: ast.expr | None) -> str:
    shown = given.arg + (f": {ast.unparse(given.annotation)}" if given.annotation else "")
    return shown if default is None else f"{shown} = {ast.unparse(default)}"


if __name__ == "__main__":
    import django

    django.setup()
    main()
