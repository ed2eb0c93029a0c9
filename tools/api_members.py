"""What the API reference says of an object besides its docstring: signature, members, types."""

from __future__ import annotations

import dataclasses
import enum
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

PACKAGE = "arbiter"
LINE = 88  # characters of a signature on one line
LONGEST_DEFAULT = 40  # characters of a default value that is written out


@dataclass(frozen=True)
class Member:
    """A public method or property of a class.

    Attributes:
        name: As it is called.
        doc: Its docstring.
        function: What is called; a property's getter.
        is_property: Whether it is read without a call.
        is_class_method: Whether it is called on the class.
    """

    name: str
    doc: str
    function: Callable[..., Any]
    is_property: bool
    is_class_method: bool

    @property
    def returns(self) -> str:
        """The annotation of what it returns."""
        return name_annotation(getattr(self.function, "__annotations__", {}).get("return", ""))


def is_own(found: Any) -> bool:
    """Whether an object is defined in the package."""
    return str(getattr(found, "__module__", "")).split(".")[0] == PACKAGE


def has_page(found: Any, pages: set[str]) -> bool:
    """Whether a class of the package has a page of its own."""
    return is_own(found) and found.__name__ in pages


def list_members(found: type, pages: set[str]) -> list[Member]:
    """Return documented members of a class and of those bases that have no page."""
    members: dict[str, Member] = {}
    for base in found.__mro__:
        if not is_own(base) or (base is not found and has_page(base, pages)):
            continue
        for name, value in vars(base).items():
            member = make_member(name, value)
            if member and not is_inherited(found, base, name):
                members.setdefault(name, member)
    return list(members.values())


def is_inherited(found: type, base: type, name: str) -> bool:
    """Whether a base with a page stands before ``base`` and has the name too."""
    before = found.__mro__[1 : found.__mro__.index(base)]
    return base is not found and any(is_own(one) and hasattr(one, name) for one in before)


def make_member(name: str, value: Any) -> Member | None:
    """Return the member for an entry of a class; None if it is private or undocumented."""
    if name.startswith("_") and name != "__call__":
        return None
    is_property = isinstance(value, property | cached_property)
    is_class_method = isinstance(value, classmethod | staticmethod)
    if isinstance(value, property):
        function = value.fget
    elif isinstance(value, cached_property):
        function = value.func
    elif is_class_method:
        function = value.__func__
    else:
        function = value if inspect.isfunction(value) else None
    doc = inspect.getdoc(function) if function else None
    if function is None or not doc:
        return None
    return Member(name, doc, function, is_property, is_class_method)


def list_inherited(found: type, pages: set[str]) -> Iterator[tuple[type, list[str]]]:
    """Yield each base with a page, and the methods that the class has from there unchanged."""
    for base in found.__mro__[1:]:
        if has_page(base, pages):
            names = [
                member.name
                for member in list_members(base, pages)
                if not member.is_property
                and getattr(found, member.name) is not None
                and member.name not in vars(found)
            ]
            if names:
                yield base, names


def build_signature(call: str, found: Any) -> str:
    """Return how an object is called, on one line or one argument a line; "" if it is not."""
    if isinstance(found, type) and issubclass(found, BaseException | enum.Enum):
        return ""
    signature = inspect.signature(found)
    arguments: list[str] = []
    stars = False
    for parameter in signature.parameters.values():
        if parameter.name in ("self", "cls") and not arguments:
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not stars:
            arguments.append("*")
        stars |= parameter.kind in (parameter.KEYWORD_ONLY, parameter.VAR_POSITIONAL)
        arguments.append(format_parameter(parameter))
    returns = "" if isinstance(found, type) else name_annotation(signature.return_annotation)
    arrow = f" -> {returns}" if returns else ""
    line = f"{call}({', '.join(arguments)}){arrow}"
    if len(line) <= LINE:
        return line
    return "\n".join([f"{call}(", *(f"    {one}," for one in arguments), f"){arrow}"])


def format_parameter(parameter: inspect.Parameter) -> str:
    """Return one argument with annotation and default; a long default is three dots."""
    stars = ""
    if parameter.kind is parameter.VAR_POSITIONAL:
        stars = "*"
    elif parameter.kind is parameter.VAR_KEYWORD:
        stars = "**"
    annotation = name_annotation(parameter.annotation)
    text = f"{stars}{parameter.name}" + (f": {annotation}" if annotation else "")
    if parameter.default is parameter.empty:
        return text
    default = repr(parameter.default)
    if default.startswith("<") or len(default) > LONGEST_DEFAULT:
        default = "..."
    return f"{text} = {default}"


def name_annotation(annotation: Any) -> str:
    """Return an annotation as text, "" if there is none."""
    if annotation in (inspect.Signature.empty, ""):
        return ""
    if isinstance(annotation, str):
        return annotation.strip("'\"")
    return str(getattr(annotation, "__name__", annotation))


def inspect_type(found: Any, name: str) -> str:
    """Return the annotation of an argument, "" if it has none."""
    try:
        parameters = inspect.signature(found).parameters
    except ValueError:
        return ""
    name = name.lstrip("*")
    return name_annotation(parameters[name].annotation) if name in parameters else ""


def type_of_field(found: type, name: str) -> str:
    """Return the annotation of a field or property of a class, "" if it has none."""
    for base in found.__mro__:
        fields = inspect.get_annotations(base)
        if name in fields:
            return name_annotation(fields[name])
        member = make_member(name, base.__dict__.get(name))
        if member:
            return member.returns
    return ""


def list_own_fields(found: type) -> list[str]:
    """Return the public fields that a dataclass adds to those of its bases."""
    if not dataclasses.is_dataclass(found):
        return []
    return [
        name
        for name, annotation in inspect.get_annotations(found).items()
        if not name.startswith("_") and "ClassVar" not in name_annotation(annotation)
    ]


def find_result_types(found: Any, pages: set[str]) -> list[type]:
    """Return classes without a page that the object returns, or holds as attributes."""
    annotations: list[str] = []
    if isinstance(found, type):
        if dataclasses.is_dataclass(found):
            annotations += [name_annotation(one.type) for one in dataclasses.fields(found)]
        annotations += [member.returns for member in list_members(found, pages)]
    else:
        annotations.append(name_annotation(inspect.signature(found).return_annotation))
    names = dict.fromkeys(name for text in annotations for name in re.findall(r"[A-Z]\w+", text))
    classes = (find_class(name, found.__module__) for name in names)
    return [one for one in classes if one is not None and not has_page(one, pages) and one.__doc__]


def find_class(name: str, module: str) -> type | None:
    """Return a documented class of the package by its name, as a module sees it or else any."""
    modules = [module, *(one for one in sorted(sys.modules) if one.split(".")[0] == PACKAGE)]
    for one in modules:
        found = getattr(sys.modules[one], name, None) if one != PACKAGE else None
        if isinstance(found, type) and is_own(found):
            return found
    return None
