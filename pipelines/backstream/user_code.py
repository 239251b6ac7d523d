"""Load code of users by name, `package.module:name`, hash it, and explain its errors.

Watermark generators, transformations, functions, jobs, and process functions all go through this module. A hash
needs no import of the code.
"""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import re
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, cast
from zipfile import ZipFile

from backstream.errors import BackstreamError, SpecError, UserCodeError

USER_CODE_PATTERN = r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*$"
"""The form of a name of user code."""
_HASH_LENGTH = 16
_FRAME = re.compile(r'^\s*File "(?P<file>[^"]+)", line \d+, in ')
_FOREIGN_PARTS = (
    f"{Path(__file__).parent.as_posix()}/",
    "/backstream.zip/",
    "/pyspark/",
    "/pyspark.zip/",
    "/py4j",
    "<frozen ",
)
"""Parts of the paths of frames that don't belong to user code, here and on executors."""


@dataclass(frozen=True, slots=True)
class UserCode:
    """A class or function of the user: `role` is what it is for messages, `target` is `package.module:name`.

    It holds a name instead of the code, so that it can be sent to executors that import the module.
    """

    role: str
    target: str

    @property
    def module(self) -> str:
        """The module of the code."""
        return self.target.partition(":")[0]

    @property
    def package(self) -> str:
        """The package that executors need: the top-level package or module."""
        return self.module.partition(".")[0]

    def load_class(self, methods: Sequence[str]) -> type:
        """Return the class, which must have these methods.

        Raises:
            SpecError: when the module cannot be imported, or has no such class.
        """
        loaded = self._load()
        if not isinstance(loaded, type):
            msg = f"{self} cannot be imported: {self.module} has no class {self._name!r}"
            raise SpecError(msg)
        for method in methods:
            if not callable(getattr(loaded, method, None)):
                msg = f"{self} must have the method {method}"
                raise SpecError(msg)
        return loaded

    def load_function(self, arguments: int, options: Mapping[str, Any] | None = None) -> Callable[..., Any]:
        """Return the function, which must accept this number of positional arguments, and these options.

        Raises:
            SpecError: when the module cannot be imported, or has no such function.
        """
        loaded = self._load()
        if not callable(loaded):
            msg = f"{self} cannot be imported: {self.module} has no function {self._name!r}"
            raise SpecError(msg)
        try:
            inspect.signature(loaded).bind(*[None] * arguments, **(options or {}))
        except TypeError as error:
            given = "1 argument" if arguments == 1 else f"{arguments} arguments"
            with_options = f" and the options {dict(options)}" if options else ""
            msg = f"{self} must take {given}{with_options}: {error}"
            raise SpecError(msg) from None
        except ValueError:  # some callables of C code have no signature
            pass
        return cast("Callable[..., Any]", loaded)

    def load_any_function(self) -> Callable[..., Any]:
        """Return the function, whatever arguments it has.

        Raises:
            SpecError: when the module cannot be imported, or has no such function.
        """
        loaded = self._load()
        if not callable(loaded):
            msg = f"{self} cannot be imported: {self.module} has no function {self._name!r}"
            raise SpecError(msg)
        return cast("Callable[..., Any]", loaded)

    def create(self, methods: Sequence[str], options: Mapping[str, Any]) -> Any:
        """Return an instance of the class, with the options as keyword arguments.

        Raises:
            SpecError: when the class cannot be imported, lacks a method, or does not take the options.
        """
        loaded = self.load_class(methods)
        try:
            inspect.signature(loaded).bind(**options)
        except TypeError as error:
            msg = f"{self} does not take the options {dict(options)}: {error}"
            raise SpecError(msg) from None
        try:
            return loaded(**options)
        except Exception as error:
            msg = f"{self} rejected the options {dict(options)}: {error!r}"
            raise SpecError(msg) from error

    def source_hash(self) -> str:
        """Return a hash of the Python files that executors get; it does not import them.

        Raises:
            SpecError: when there is no such package.
        """
        sources = read_sources(self.package)
        if not sources:
            msg = (
                f"{self} cannot be imported: there is no package {self.package!r}\n\n"
                "hint: install it, or add its folder to PYTHONPATH"
            )
            raise SpecError(msg)
        digest = hashlib.sha256()
        for name, content in sources:
            digest.update(f"{name}\0{len(content)}\0".encode())
            digest.update(content)
        return digest.hexdigest()[:_HASH_LENGTH]

    def __str__(self) -> str:
        return f"{self.role} {self.target}"

    def _is_in_trace(self, text: str) -> bool:
        """Return whether the last trace in a text has a frame of this package."""
        files = [match["file"] for line in _trace_lines(text) if (match := _FRAME.match(line))]
        return any(f"/{self.package}/" in file or file.endswith(f"/{self.package}.py") for file in files)

    @property
    def _name(self) -> str:
        return self.target.partition(":")[2]

    def _load(self) -> Any:
        try:
            return getattr(import_module(self.module), self._name, None)
        except Exception as error:
            msg = f"{self} cannot be imported: {error!r}"
            raise SpecError(msg) from error

    @contextmanager
    def explain_errors(self, place: str, *, is_remote: bool = False) -> Iterator[None]:
        """Raise a readable error for an exception of the code.

        Args:
            place: the place of the failure, e.g., the chunk.
            is_remote: whether other code runs, too, so that only an exception with a frame of the package counts.

        Raises:
            UserCodeError: with the trace of the user's own frames first.
        """
        try:
            yield
        except BackstreamError:
            raise
        except Exception as error:
            if is_remote and not self._is_in_trace(str(error)):
                raise
            msg = f"{self} failed {place}: {last_line_of_trace(error)}\n{user_trace(error)}"
            raise UserCodeError(msg) from error


def read_sources(package: str) -> list[tuple[str, bytes]]:
    """Return the Python files of an importable package or module: their names in an archive, and their contents.

    The list is empty if there is no such package. The package may be in a zip archive.
    """
    spec = importlib.util.find_spec(package)
    if spec is None:
        return []
    if spec.submodule_search_locations is None:
        return _read_file(Path(spec.origin), f"{package}.py") if spec.origin else []
    # A namespace package may list a folder twice, and Python imports a module from the first folder that has it.
    locations = reversed(list(spec.submodule_search_locations))
    contents = {name: text for location in locations for name, text in _read_folder(Path(location), package)}
    return sorted(contents.items())


def _read_folder(folder: Path, package: str) -> list[tuple[str, bytes]]:
    if folder.is_dir():
        files = sorted(folder.rglob("*.py"))
        return [(f"{package}/{file.relative_to(folder).as_posix()}", file.read_bytes()) for file in files]
    with ZipFile(folder.parent) as archive:
        names = [name for name in archive.namelist() if name.startswith(f"{package}/") and name.endswith(".py")]
        return [(name, archive.read(name)) for name in sorted(names)]


def _read_file(file: Path, name: str) -> list[tuple[str, bytes]]:
    if file.is_file():
        return [(name, file.read_bytes())]
    if not file.parent.is_file():  # a built-in module
        return []
    with ZipFile(file.parent) as archive:
        return [(name, archive.read(file.name))]


def user_trace(error: BaseException) -> str:
    """Return the trace of an exception, indented, without the frames of backstream and Spark.

    Spark reports an exception of an executor as text in its own exception, whose trace is used.
    """
    text = str(error) if "Traceback (most recent call last)" in str(error) else _format_trace(error)
    lines = list(_lines_of_user(text))
    return "\n".join(f"  {line}" for line in lines)


def last_line_of_trace(error: BaseException) -> str:
    """Return an exception as one line, such as `ValueError: must be positive`.

    It is the exception of the executor, if the text has one.
    """
    text = str(error)
    if "Traceback (most recent call last)" not in text:
        return f"{type(error).__name__}: {text.partition(chr(10))[0]}"
    lines = _trace_lines(text)
    return lines[-1].strip() if lines else type(error).__name__


def _format_trace(error: BaseException) -> str:
    return "".join(traceback.format_exception(type(error), error, error.__traceback__))


def _trace_lines(text: str) -> list[str]:
    """Return the lines of the last trace in a text, up to its exception."""
    _, _, trace = text.rpartition("Traceback (most recent call last):")
    lines: list[str] = []
    for line in trace.splitlines():
        if not line.strip():
            continue
        lines.append(line)
        if not line[0].isspace():
            break
    return lines


def _lines_of_user(text: str) -> Iterator[str]:
    """Yield the frames of user code in the last trace of a text, and its exception."""
    is_shown = False
    for line in _trace_lines(text):
        if match := _FRAME.match(line):
            is_shown = not any(part in match["file"] for part in _FOREIGN_PARTS)
        if is_shown or not line[:1].isspace():
            yield line
