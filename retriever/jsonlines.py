"""Documents from a stream of JSON lines, for the command line.

Rule: whatever is wrong with a line is said with file and line number, also where the fault comes out only
when its batch is encoded; and a stream is read as it is needed, so its length costs no memory.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from fields.errors import InvalidInput
from fields.kinds import Stored
from fields.names import check_id
from retriever.documents import Document
from retriever.schema import Schema


class JsonLines:
    """An iterable of Documents, one for each line that is not blank.

    lines: the bytes of each line. file: its name, for errors. id_field, text_field: the keys of id and text.
    A key is the id, the text, a declared field (also where it is the id or the text as well) or, unless a
    field is called so, ``vector``. ``null`` is an absent field; only a Stored field holds it as a value.
    ignore_unknown: pass over other keys, which are an error otherwise.
    bytes_read, documents: how far it is; documents counts those that were ``written``.
    """

    def __init__(
        self,
        lines: Iterable[bytes],
        file: str,
        schema: Schema,
        *,
        id_field: str = "id",
        text_field: str = "text",
        ignore_unknown: bool = False,
    ) -> None:
        self.bytes_read = self.documents = 0
        self._lines, self._file, self._schema = lines, file, schema
        self._id_field, self._text_field = id_field, text_field
        self._ignore_unknown = ignore_unknown
        self._places: dict[str, int] = {}  # id -> line, of the batch that is being written

    def __iter__(self) -> Iterator[Document]:
        for number, line in enumerate(self._lines, 1):
            self.bytes_read += len(line)
            if not line.strip():
                continue
            try:
                document = self._document(_object(line))
            except InvalidInput as error:
                raise InvalidInput(f"{self._file}:{number}: {error}") from None
            self._places[document.id] = number
            yield document

    def written(self, documents: int) -> None:
        """Count them, and forget where those so far came from: they are through."""
        self.documents += documents
        self._places.clear()

    def placed(self, error: BaseException) -> BaseException:
        """The error; with file and line, if it is InvalidInput about a document that is not written yet."""
        said = str(error)
        found = [id for id in self._places if said.startswith(f"document {id!r}")]
        if not found or not isinstance(error, InvalidInput):
            return error
        return InvalidInput(f"{self._file}:{self._places[max(found, key=len)]}: {said}")

    def _document(self, row: dict[str, Any]) -> Document:
        if self._id_field not in row:
            raise InvalidInput(f"the key {self._id_field!r} is missing; it is the document's id")
        id, text = row[self._id_field], row.get(self._text_field)
        if type(id) is int:
            id = str(id)
        declared = self._schema.by_name
        vector = None if "vector" in declared else row.get("vector")
        if vector is not None and not isinstance(vector, list):
            raise InvalidInput(f"vector: a list of numbers expected, not {vector!r:.80}")
        if not self._ignore_unknown:
            for name in row:
                if name not in declared and name not in (self._id_field, self._text_field, "vector"):
                    known = ", ".join([self._id_field, self._text_field, *declared, "vector"])
                    raise InvalidInput(f"unknown key {name!r}; known: {known}")
        fields = {
            name: value
            for name, value in row.items()
            if name in declared and (value is not None or isinstance(declared[name], Stored))
        }
        return Document(check_id(id), "" if text is None else text, fields, vector)


def _object(line: bytes) -> dict[str, Any]:
    try:
        row = json.loads(line.decode("utf-8-sig").strip())
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"no JSON: {error}") from None
    if not isinstance(row, dict):
        raise InvalidInput(f"a JSON object expected, not {row!r:.80}")
    return row
