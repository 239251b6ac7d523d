"""Call what may hang, such as a catalog or a database, with a time limit and without many waiting threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotDoneError
from dataclasses import dataclass, field
from typing import Any, TypeVar

from backstream.errors import BackstreamError

LIMIT_S = 2.0
"""The time limit of one call: no call follows one that hung, so a page responds within five seconds."""

_Answer = TypeVar("_Answer")


class NoResponseError(BackstreamError):
    """The called system has not responded within the time limit."""


@dataclass(slots=True)
class LimitedCalls:
    """Calls of one system; each runs in a thread of its own, because a hanging call cannot be stopped.

    Callers of the same question share one call. While a call is over the limit, no other one starts.
    """

    system: str
    limit_s: float = LIMIT_S
    _calls: dict[Hashable, tuple[Future[Any], float]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def call(self, question: Hashable, ask: Callable[[], _Answer]) -> _Answer:
        """Return the answer to a question.

        Args:
            question: equal for calls with the same answer at the same time.
            ask: the call.

        Raises:
            NoResponseError: when there is none within the limit, or an earlier call still hangs.
        """
        now_s = time.monotonic()
        with self._lock:
            if any(now_s - began_s >= self.limit_s for _, began_s in self._calls.values()):
                raise self._no_response()
            answer, began_s = self._calls.get(question) or self._start(question, ask, now_s)
        try:
            found: _Answer = answer.result(max(0.0, began_s + self.limit_s - time.monotonic()))
        except NotDoneError:
            if answer.done():  # the call itself raised a time-out
                raise
            raise self._no_response() from None
        return found

    def _start(
        self, question: Hashable, ask: Callable[[], _Answer], now_s: float
    ) -> tuple[Future[_Answer], float]:
        answer: Future[_Answer] = Future()
        self._calls[question] = answer, now_s

        def run() -> None:
            result: _Answer | None = None
            problem: BaseException | None = None
            try:
                result = ask()
            except BaseException as error:  # noqa: BLE001 - each caller raises it
                problem = error
            with self._lock:
                del self._calls[question]
            if problem is None:
                answer.set_result(result)  # type: ignore[arg-type]
            else:
                answer.set_exception(problem)

        threading.Thread(target=run, name=f"backstream: {self.system}", daemon=True).start()
        return answer, now_s

    def _no_response(self) -> NoResponseError:
        return NoResponseError(f"{self.system} has not responded within {self.limit_s:g} s")
