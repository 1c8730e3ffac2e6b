"""Arrays to bytes: converted from every kind of array, refused where an engine would answer nonsense."""

from __future__ import annotations

import array

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fields.errors import InvalidInput
from fields.vectors import embedding_matrix, matrix_rows, vector_bytes, vector_from_bytes
from tests.fakes import shown

ROWS = np.array([[1, 2, 3], [-4, 0, 0.5]], np.float32)
EXPECTED = [row.astype("<f4").tobytes() for row in ROWS]
LARGE = float(np.finfo(np.float32).max)


def name(at):
    return f"document {'ab'[at]!r}"


@pytest.mark.parametrize(
    "rows",
    [
        ROWS,
        ROWS.astype(np.float64),
        ROWS.astype(np.float16),
        ROWS.astype(">f4"),
        ROWS.astype(">f8"),
        np.asfortranarray(ROWS),
        np.repeat(ROWS, 2, axis=1)[:, ::2],
        np.repeat(ROWS.astype(np.float64), 2, axis=0)[::2],
        ROWS[::-1][::-1],
        list(ROWS),
        list(ROWS.astype(">f8")),
        [ROWS[0].astype(np.float64), ROWS[1]],
        [ROWS[0], ROWS[1].tolist()],
        [ROWS[0].tolist(), ROWS[1]],
        ROWS.tolist(),
        [tuple(row) for row in ROWS.tolist()],
        [array.array("f", row) for row in ROWS],
        [np.repeat(row, 3)[::3] for row in ROWS],
        [list(row) for row in ROWS],
        (ROWS[0], ROWS[1]),
    ],
    ids=[
        "float32",
        "float64",
        "float16",
        "big-endian",
        "big-endian float64",
        "Fortran order",
        "strided columns",
        "strided rows",
        "reversed twice",
        "list of rows",
        "list of big-endian rows",
        "mixed dtypes",
        "array and list",
        "list and array",
        "list of lists",
        "list of tuples",
        "array.array",
        "strided rows in a list",
        "lists of numpy scalars",
        "tuple of rows",
    ],
)
@pytest.mark.parametrize("metric", ["COSINE", "L2", "IP"])
def test_every_kind_of_array_is_converted(rows, metric):
    """Whatever array holds the numbers, the bytes are those of little-endian float32, case B44."""
    assert matrix_rows(rows, 3, metric, name) == EXPECTED
    assert [vector_bytes(row, 3, metric) for row in rows] == EXPECTED


@pytest.mark.parametrize("dtype", ["i1", "u1", ">i2", "u4", "i8", "u8"])
def test_whole_numbers_are_converted(dtype):
    """Integers become floats, never reinterpreted bits."""
    rows = np.array([[1, 2, 3], [4, 0, 5]], dtype)
    expected = [row.astype("<f4").tobytes() for row in rows]
    assert matrix_rows(rows, 3, "L2", name) == expected
    assert matrix_rows([list(map(int, row)) for row in rows], 3, "L2", name) == expected


@given(
    st.integers(1, 5).flatmap(
        lambda width: st.lists(
            st.lists(st.floats(-(2.0**60), 2.0**60, width=32), min_size=width, max_size=width), min_size=1, max_size=4
        )
    )
)
def test_bytes_come_back_as_the_same_numbers(rows):
    """vector_from_bytes undoes vector_bytes; a matrix is its rows, one by one."""
    width = len(rows[0])
    data = matrix_rows(np.array(rows), width, "L2", str)
    assert data == [vector_bytes(row, width, "L2") for row in rows]
    for stored, row in zip(data, rows, strict=True):
        assert vector_from_bytes(stored).tolist() == row


def test_no_rows_are_no_rows():
    """An empty batch is no error."""
    assert matrix_rows([], 3, "COSINE", name) == []


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ([1, np.nan, 0], "nan at position 1"),
        ([1, 0, np.inf], "inf at position 2"),
        ([-np.inf, np.inf, 0], "-inf at position 0"),
        ([1e39, 0, 0], "inf at position 0"),
        ([0, -1e300, 0], "-inf at position 1"),
        ([LARGE, LARGE, 0], "beyond what engines compute"),
        ([1, 2], "2 dimensions, the index has 3"),
        ([1, 2, 3, 4], "4 dimensions, the index has 3"),
        ([], "0 dimensions"),
        ([[1, 2, 3]], "one dimension expected"),
        ([[1], [2, 3]], "not an array of numbers"),
        ([1, "2", 3], "real numbers expected"),
        (["1", "2", "3"], "real numbers expected"),
        ([1, None, 3], "real numbers expected"),
        ([True, False, True], "real numbers expected"),
        ([1j, 0, 0], "real numbers expected"),
        ([10**400, 0, 0], "real numbers expected"),
        ("abc", "an array of numbers expected, not str"),
        (b"\0" * 12, "an array of numbers expected, not bytes"),
        (bytearray(12), "an array of numbers expected, not bytearray"),
        (memoryview(bytes(12)), "an array of numbers expected, not memoryview"),
        ({1: 2}, "real numbers expected"),
        (object(), "real numbers expected"),
    ],
    ids=shown,
)
@pytest.mark.parametrize("metric", ["COSINE", "L2", "IP"])
def test_vectors_that_are_refused(bad, reason, metric):
    """A vector that poisons an index or answers nonsense is refused by name, cases B42 to B44."""
    with pytest.raises(InvalidInput, match=f"vector: .*{reason}"):
        vector_bytes(bad, 3, metric)
    with pytest.raises(InvalidInput, match=f"document 'b': .*{reason}"):
        matrix_rows([[1, 2, 3], bad], 3, metric, name)


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ([1, np.nan, 0], "nan at position 1"),
        ([1, 0, np.inf], "inf at position 2"),
        ([1e39, 0, 0], "inf at position 0"),
        ([LARGE, LARGE, 0], "beyond what engines compute"),
    ],
    ids=repr,
)
@pytest.mark.parametrize("dtype", ["f4", "f8", ">f8"])
def test_a_bad_row_of_a_matrix_is_named(bad, reason, dtype):
    """One pass over a matrix finds the row and says which document it is."""
    with np.errstate(over="ignore"):
        matrix = np.array([[1, 2, 3], bad]).astype(dtype)
    with pytest.raises(InvalidInput, match=f"document 'b': .*{reason}"):
        matrix_rows(matrix, 3, "L2", name)
    with pytest.raises(InvalidInput, match=f"document 'b': .*{reason}"):
        matrix_rows(list(matrix), 3, "L2", name)


@pytest.mark.parametrize(
    ("row", "metric", "reason"),
    [
        ([0, 0, 0], "COSINE", "a zero vector has no direction"),
        ([0, -0.0, 0], "COSINE", "a zero vector has no direction"),
        ([1e-60, 0, 0], "COSINE", "a zero vector has no direction"),
        ([1e-45, 0, 0], "COSINE", "beyond what engines compute"),
        ([1e-25, 0, 0], "COSINE", "beyond what engines compute"),
        ([2e19, 0, 0], "COSINE", "beyond what engines compute"),
        ([1e19, 0, 0], "L2", "beyond what engines compute"),
        ([1e19, 0, 0], "IP", "beyond what engines compute"),
        ([0, 0, 0], "L2", None),
        ([0, 0, 0], "IP", None),
        ([1e-45, 0, 0], "L2", None),
        ([1e-18, 0, 0], "COSINE", None),
        ([1e18, 0, 0], "COSINE", None),
        ([1.8e19, 0, 0], "COSINE", None),
        ([9e18, 0, 0], "L2", None),
    ],
    ids=repr,
)
def test_lengths_that_an_engine_can_compute_with(row, metric, reason):
    """Zero has no direction under cosine; a length that float32 cannot square is refused, cases B42 and B43."""
    if reason is None:
        assert len(vector_bytes(row, 3, metric)) == 12
        assert len(matrix_rows(np.array([row]), 3, metric, name)) == 1
        return
    for refused in (
        lambda: vector_bytes(row, 3, metric),
        lambda: matrix_rows(np.array([[1, 1, 1], row]), 3, metric, name),
        lambda: matrix_rows([row], 3, metric, name),
    ):
        with pytest.raises(InvalidInput, match=reason):
            refused()


@pytest.mark.parametrize(
    ("result", "dims"),
    [
        (ROWS, 3),
        (ROWS, None),
        (ROWS.tolist(), 3),
        (list(ROWS), None),
        (ROWS.astype(">f8"), 3),
        (np.asfortranarray(ROWS), 3),
    ],
    ids=["matrix", "unknown dims", "lists", "rows", "big-endian float64", "Fortran order"],
)
def test_an_embedders_result_becomes_a_matrix(result, dims):
    """Whatever an embedder returns for two texts becomes float32 of shape (2, dims)."""
    matrix = embedding_matrix(result, 2, dims)
    assert (matrix.dtype, matrix.shape) == (np.dtype(np.float32), (2, 3))
    assert matrix.tolist() == ROWS.tolist()


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        (ROWS[:1], r"shape \(1, 3\) for 2 texts"),
        (ROWS[0], r"shape \(3,\) for 2 texts"),
        (np.zeros((2, 0)), r"shape \(2, 0\)"),
        (np.zeros((2, 3, 1)), r"shape \(2, 3, 1\)"),
        (np.float32(1), "for 2 texts"),
        (ROWS[:, :2], "2 dimensions, the index has 3"),
        ([[1, 2, 3], [1, 2]], "the embedder's result: not an array"),
        (None, "the embedder's result: real numbers"),
        ([None, None], "the embedder's result: real numbers"),
        ({"a": 1}, "the embedder's result: real numbers"),
        (["a", "b"], "the embedder's result: real numbers"),
        ("ab", "the embedder's result: an array"),
    ],
    ids=lambda part: repr(part)[:30],
)
def test_results_of_an_embedder_that_are_refused(result, reason):
    """Too few rows, another width or no numbers at all are the embedder's fault, and said so."""
    with pytest.raises(InvalidInput, match=reason):
        embedding_matrix(result, 2, 3)


def test_bytes_that_are_no_vector():
    """A length that no float32 vector has is a ValueError; a vector read is read-only."""
    with pytest.raises(ValueError, match="5 bytes"):
        vector_from_bytes(b"12345")
    with pytest.raises(ValueError, match="read-only"):
        vector_from_bytes(bytes(8))[0] = 1
