"""NumPy arrays and scalars. NumPy is imported only if a stored value needs it."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[Any]]

__all__ = [
    "OBJECT",
    "dump_array",
    "dump_scalar",
    "holds_objects",
    "is_array",
    "is_scalar",
    "load_array",
    "load_objects",
    "load_scalar",
    "shape_and_order",
]

OBJECT = "|O"
"""The dtype of arrays of Python objects: their items are encoded one by one, never as pointers."""


def is_array(value: object) -> bool:
    """Whether the value is a NumPy array, of a subclass too; does not import NumPy."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.ndarray)


def is_scalar(value: object) -> bool:
    """Whether the value is a NumPy scalar; does not import NumPy."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.generic)


def holds_objects(value: Any) -> bool:
    """Whether it is an array (of no subclass) whose items are Python objects."""
    return _is_exactly_array(value) and bool(value.dtype == object)


def _is_exactly_array(value: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and type(value) is numpy.ndarray


def shape_and_order(array: Array) -> tuple[list[int], str]:
    """The shape, and the memory order to keep: F if it is Fortran-contiguous and not C-contiguous, else C."""
    flags = array.flags
    return list(array.shape), "F" if flags.f_contiguous and not flags.c_contiguous else "C"


def dump_array(array: Array) -> list[Any]:
    """[dtype, shape, order, bytes] of an array without Python objects; ValueError with the reason if not exact."""
    if not _is_exactly_array(array):
        raise ValueError(_mend(array))
    shape, order = shape_and_order(array)
    return [_dump_dtype(array.dtype), shape, order, _content(array, order)]


def dump_scalar(value: np.generic) -> list[Any]:
    """[dtype, bytes] of a NumPy scalar; ValueError with the reason if it would not come back the same."""
    import numpy as np

    if type(value).__module__ != "numpy":
        raise ValueError("a scalar class from outside NumPy")
    array: Array = np.asarray(value)
    back: Any = array[()]
    described = _dump_dtype(array.dtype)
    if type(back) is not type(value) or value.tobytes() != back.tobytes():
        raise ValueError("a NumPy scalar that does not survive an array")
    return [described, _content(array, "C")]


def load_array(dtype: Any, shape: Any, order: Any, data: bytes) -> Array:
    """The array, writable and owning its memory."""
    import numpy as np

    kind = _load_dtype(dtype)
    if order not in ("C", "F") or len(data) != math.prod(shape) * kind.itemsize or any(n < 0 for n in shape):
        raise ValueError(f"{len(data)} bytes for shape {shape} of {kind}")
    return _cleaned(np.ndarray(tuple(shape), kind, data, order=order), order)


def load_objects(shape: Any, order: Any, items: list[Any]) -> Array:
    """The array of these objects, given in C order."""
    import numpy as np

    if len(items) != math.prod(shape):
        raise ValueError(f"{len(items)} items for shape {shape}")
    flat: Array = np.empty(len(items), object)
    for index, item in enumerate(items):
        flat[index] = item
    made: Array = np.empty(shape, object, "F" if order == "F" else "C")
    made[...] = flat.reshape(shape)
    return made


def load_scalar(dtype: Any, data: bytes) -> Any:
    """The scalar of these bytes."""
    return load_array(dtype, [], "C", data)[()]


def _mend(array: Array) -> str:
    """Say how to store an array of a subclass without losing what it has beyond its items."""
    import numpy as np

    if isinstance(array, np.ma.MaskedArray):
        return (
            "a masked array; store its data and its mask, (numpy.ma.getdata(a), numpy.ma.getmaskarray(a)), and make it "
            "again with numpy.ma.array(data, mask=mask)"
        )
    return "a subclass of numpy.ndarray; numpy.asarray gives its items alone: store apart what else it holds"


def _content(array: Array, order: str) -> bytes:
    """The bytes in this order. Padding between the fields of records is zeroed, so that equal arrays give equal bytes."""
    whole = array if array.dtype.fields is None else _cleaned(array, order)
    return whole.tobytes("F" if order == "F" else "C")


def _cleaned(array: Array, order: Any) -> Array:
    import numpy as np

    clean: Array = np.zeros(array.shape, array.dtype, order)
    clean[...] = array
    return clean


def _dump_dtype(dtype: np.dtype[Any]) -> Any:
    import numpy as np

    if dtype.hasobject:
        raise ValueError("an array of records that hold Python objects")
    if any(leaf.char in "gG" for leaf in _leaves(dtype)):
        raise ValueError("a long double, whose bytes mean another number on another machine; convert it to float64")
    if dtype.metadata:
        raise ValueError("a dtype with metadata")
    described = _freeze(np.lib.format.dtype_to_descr(dtype))
    if _load_dtype(described) != dtype:
        raise ValueError(f"dtype {dtype} has no exact description")
    return described


def _leaves(dtype: np.dtype[Any]) -> Iterator[np.dtype[Any]]:
    if dtype.subdtype is not None:
        yield from _leaves(dtype.subdtype[0])
    elif dtype.fields is not None:
        for field in dtype.fields.values():
            yield from _leaves(field[0])
    else:
        yield dtype


def _load_dtype(described: Any) -> np.dtype[Any]:
    import numpy as np

    dtype: np.dtype[Any] = np.lib.format.descr_to_dtype(_thaw(described))
    if dtype.hasobject:
        raise ValueError("an array of pointers")
    return dtype


def _freeze(described: Any) -> Any:
    return [_freeze(part) for part in _parts(described)] if isinstance(described, (list, tuple)) else described


def _parts(described: Any) -> Sequence[Any]:
    """The parts of a nested description, typed as a sequence."""
    return described  # type: ignore[no-any-return]


def _thaw(described: Any) -> Any:
    """Lists as NumPy wants them: a list of fields, each a tuple (name or (title, name), dtype[, shape])."""
    if not isinstance(described, list):
        return described
    parts = _parts(described)
    if len(parts) == 2 and isinstance(parts[1], list) and all(type(n) is int for n in _parts(parts[1])):
        return _thaw(parts[0]), tuple(_parts(parts[1]))
    return [_thaw_field(*_parts(field)) for field in parts]


def _thaw_field(name: Any, kind: Any, *shape: Any) -> tuple[Any, ...]:
    label: Any = tuple(_parts(name)) if isinstance(name, list) else name
    return (label, _thaw(kind), *(tuple(part) for part in shape))
