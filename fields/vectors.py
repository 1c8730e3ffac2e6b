"""Arrays to little-endian float32 bytes and back.

Engines take any bytes of the right length and say OK. One zero, NaN or infinite vector under cosine
then ruins the answers of a whole index (measured: recall@10 from 1.00 to 0.002), and float64 bytes of
half the dimensions have the very length of float32 ones. So every vector, a document's or a query's,
passes through here: converted, never reinterpreted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from fields.errors import InvalidInput

Metric: TypeAlias = Literal["COSINE", "L2", "IP"]
Matrix: TypeAlias = npt.NDArray[np.float32]

_LITTLE_FLOAT32 = np.dtype("<f4")
_FLOAT32 = np.finfo(np.float32)
# Engines sum squares in float32. Outside these bounds of the squared length the sum overflows or
# vanishes and distances come back wrong without an error (seen: -0.41 for a vector of 1e-45, 1 for
# all at 3e38). A quarter of the greatest float32 keeps (a - b) squared finite under L2.
_SQUARED_LENGTH: dict[Metric, tuple[float, float]] = {
    "COSINE": (float(_FLOAT32.tiny), float(_FLOAT32.max)),
    "L2": (0.0, float(_FLOAT32.max) / 4),
    "IP": (0.0, float(_FLOAT32.max) / 4),
}


def vector_bytes(vector: Any, dims: int, metric: Metric, what: str = "vector") -> bytes:
    """One vector as ``4 * dims`` little-endian bytes.

    vector: any real one-dimensional array or sequence of numbers; converted to float32.
    Raises InvalidInput on another length, NaN, infinity, a zero vector under COSINE, or a length
    that the engines cannot compute with.
    """
    row = _array(vector, what)
    if row.shape != (dims,):
        if row.ndim != 1:
            raise InvalidInput(f"{what}: one dimension expected, shape is {row.shape}")
        raise InvalidInput(f"{what}: {row.shape[0]} dimensions, the index has {dims}")
    low, high = _SQUARED_LENGTH[metric]
    squared = float(np.vdot(row, row))  # as dot, but an overflow is infinite without a warning
    if not low <= squared <= high:
        _explain(row, metric, what)
    return row.tobytes()


def matrix_rows(rows: Sequence[Any] | Matrix, dims: int, metric: Metric, what: Callable[[int], str]) -> list[bytes]:
    """Many vectors, each as ``4 * dims`` bytes; checked in one pass over the matrix.

    rows: n vectors (a list of arrays or lists, or an array of shape (n, dims)); what: the position of
    a row -> what an error calls it. Raises InvalidInput as ``vector_bytes`` does.
    """
    if not len(rows):
        return []
    matrix = _stack(rows)
    if matrix is None or matrix.shape != (len(rows), dims):
        return [vector_bytes(row, dims, metric, what(at)) for at, row in enumerate(rows)]
    low, high = _SQUARED_LENGTH[metric]
    with np.errstate(over="ignore", invalid="ignore"):
        squared = np.einsum("ij,ij->i", matrix, matrix)
    sound = (squared >= low) & (squared <= high)
    if not sound.all():
        at = int(np.argmin(sound))
        _explain(matrix[at], metric, what(at))
    data, width = matrix.tobytes(), 4 * dims
    return [data[start : start + width] for start in range(0, len(data), width)]


def embedding_matrix(result: Any, count: int, dims: int | None) -> Matrix:
    """What an embedder returned, as a float32 matrix of shape (count, dims).

    dims: None takes whatever width came. Raises InvalidInput on another shape; the values are
    checked where they become bytes.
    """
    matrix = _array(result, "the embedder's result")
    if matrix.ndim != 2 or matrix.shape[0] != count or matrix.shape[1] < 1:
        raise InvalidInput(f"the embedder returned shape {matrix.shape} for {count} texts; ({count}, dims) expected")
    if dims is not None and matrix.shape[1] != dims:
        raise InvalidInput(f"the embedder returned {matrix.shape[1]} dimensions, the index has {dims}")
    return matrix


def vector_from_bytes(data: bytes) -> Matrix:
    """The inverse of ``vector_bytes``: a read-only float32 array of shape (dims,)."""
    if len(data) % 4:
        raise ValueError(f"{len(data)} bytes are no float32 vector")
    return np.frombuffer(data, dtype=_LITTLE_FLOAT32)


def _array(value: Any, what: str) -> Matrix:
    if type(value) is np.ndarray and value.dtype == _LITTLE_FLOAT32:
        return np.ascontiguousarray(value)
    if isinstance(value, (str, bytes, bytearray, memoryview, np.ma.MaskedArray)):  # a mask would be lost
        raise InvalidInput(f"{what}: an array of numbers expected, not {type(value).__name__}")
    try:
        array = np.asarray(value)
    except (ValueError, TypeError) as error:
        raise InvalidInput(f"{what}: not an array of numbers ({error})") from None
    if array.dtype.kind not in "fiu":
        raise InvalidInput(f"{what}: real numbers expected, not dtype {array.dtype}")
    # What exceeds float32 becomes infinite here and is refused by the length check.
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(array, dtype=_LITTLE_FLOAT32)


def _stack(rows: Sequence[Any] | Matrix) -> Matrix | None:
    """The rows as one matrix where numpy can stack them as they are, else None."""
    if isinstance(rows, np.ndarray):
        return _array(rows, "vectors") if rows.ndim == 2 else None
    first = rows[0]
    if isinstance(first, np.ndarray) and all(type(row) is np.ndarray for row in rows):
        kinds = {(row.dtype, row.shape) for row in rows}
        # A stack of mixed dtypes would be promoted as a whole; rows of one kind convert alike.
        if len(kinds) == 1 and first.ndim == 1 and first.dtype.kind in "fiu":
            return _array(np.concatenate(rows).reshape(len(rows), -1), "vectors")
    return None


def _explain(row: Matrix, metric: Metric, what: str) -> None:
    """Say what is wrong with a row whose squared length is out of bounds."""
    finite = np.isfinite(row)
    if not finite.all():
        at = int(np.argmin(finite))
        raise InvalidInput(f"{what}: {row[at]} at position {at}; every number must be finite in float32")
    if not row.any():
        raise InvalidInput(f"{what}: a zero vector has no direction, {metric} cannot compare it")
    raise InvalidInput(
        f"{what}: its length, {np.linalg.norm(row.astype(np.float64)):.3g}, is beyond what engines compute "
        f"in float32 under {metric}"
    )
