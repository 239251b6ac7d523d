"""Store the results of a run as JSON: the fields of a dataclass are the form of its file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from backstream.errors import LedgerError
from backstream.storage.files import load_json, write_json

if TYPE_CHECKING:
    from pydantic import ConfigDict, TypeAdapter


class RunFile:
    """A frozen dataclass with a file of its own; `what` is its name in messages."""

    __slots__ = ()
    __pydantic_config__: ClassVar[ConfigDict] = {"extra": "forbid"}
    what: ClassVar[str]

    def write(self, path: Path) -> None:
        """Write as JSON by atomic rename."""
        write_json(path, _adapter_of(type(self)).dump_python(self))

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read from a file.

        Raises:
            LedgerError: when there is no such file, or another version wrote it.
        """
        from pydantic import ValidationError  # tasks on executors import this module, and may have no Pydantic

        content = load_json(path, cls.what)
        try:
            found: Self = _adapter_of(cls).validate_python(content)
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"]))
            msg = f"{cls.what} at {path} was written by another version: {place}: {first['msg']}"
            raise LedgerError(msg) from None
        return found

    @classmethod
    def find(cls, path: Path) -> Self | None:
        """Read from a file; None if there is none.

        Raises:
            LedgerError: when another version wrote it.
        """
        return cls.read(path) if path.exists() else None

    @classmethod
    def find_readable(cls, path: Path) -> Self | None:
        """Read from a file; None if there is none, or another version wrote it."""
        try:
            return cls.read(path)
        except LedgerError:
            return None


_ADAPTERS: dict[type, TypeAdapter[Any]] = {}


def _adapter_of(kind: type) -> TypeAdapter[Any]:
    """Return the adapter of a class; it is made once, because that takes long."""
    from pydantic import TypeAdapter  # as above

    return _ADAPTERS.get(kind) or _ADAPTERS.setdefault(kind, TypeAdapter(kind))
