"""What was made of texts, kept for those that were asked for last: the rounds of a search ask for the same query."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Generic, TypeVar

from crosscut.threads import ForkLock

Made = TypeVar("Made")


class Recent(Generic[Made]):
    """What was made of the last `most` texts, and of as many more as were asked for at once."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._kept: OrderedDict[str, Made] = OrderedDict()
        self._lock = ForkLock()

    def of(self, texts: Sequence[str], make: Callable[[list[str]], Iterable[Made]]) -> list[Made]:
        """One for every text; `make` is given those of which nothing is kept, each once."""
        with self._lock:
            found = {text: self._kept[text] for text in texts if text in self._kept}
        new = [text for text in dict.fromkeys(texts) if text not in found]
        if new:
            found.update(zip(new, make(new), strict=True))
        with self._lock:
            for text in found:  # what was asked for last is forgotten last
                self._kept[text] = found[text]
                self._kept.move_to_end(text)
            while len(self._kept) > max(self.most, len(found)):
                self._kept.popitem(last=False)
        return [found[text] for text in texts]

    def __len__(self) -> int:
        return len(self._kept)

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._kept.clear()
