"""The blocks of pages that scripts write, and the names in them.

A block stands between ``<!-- NAME: written by SCRIPT -->`` and ``<!-- end -->``.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

__all__ = ["POOLS", "Blocks", "markdown_table"]

POOLS = {
    "letters": "letters",
    "glyphs": "letters and symbols",
    "omniglot": "Omniglot",
    "mini_imagenet": "mini-ImageNet",
    "places": "place names",
}
"""Data sets as tables of results name them, in their order."""


class Blocks:
    """The blocks that one script writes, each with the function that makes its text."""

    def __init__(self, script: str, makers: Mapping[str, Callable[[], str]]) -> None:
        self.makers = makers
        self._block = re.compile(
            rf"(<!-- (\w+): written by {re.escape(script)} -->\n).*?(<!-- end -->)", re.S
        )

    def names_in(self, text: str) -> set[str]:
        """The blocks that the text of a page has."""
        return {match[2] for match in self._block.finditer(text)}

    def filled(self, text: str) -> str:
        """The text of a page with its blocks written again."""
        return self._block.sub(lambda m: m[1] + self.makers[m[2]]() + m[3], text)

    def write(self, page: Path) -> None:
        """Write the blocks of a page again; an unchanged page is not touched."""
        before = page.read_text(encoding="utf-8")
        after = self.filled(before)
        if after != before:
            page.write_text(after, encoding="utf-8")
            print(f"written: {page.name}")


def markdown_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown, with a line for its header and one for each row.

    >>> print(markdown_table(["learner", "gain"], [["MAML", "1.5"]]), end="")
    | learner | gain |
    | --- | --- |
    | MAML | 1.5 |
    """
    lines = [columns, ["---"] * len(columns), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
