"""Classes of which the cases have values."""

from __future__ import annotations

import enum

from pydantic import BaseModel

__all__ = ["CLASSES", "Base", "Car", "Garage", "Phase"]


class Phase(enum.Enum):
    QUERY = "q"


class Base(BaseModel):
    k: str


class Car(Base):
    model: str


class Garage(BaseModel):
    item: Base
    items: list[Base] = []


CLASSES = (Phase, Base, Car, Garage)
