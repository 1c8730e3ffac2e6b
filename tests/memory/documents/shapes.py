"""Areas of shapes."""

import math


# Radius in metres.
def circle(radius):
    """The area of a circle."""
    return math.pi * radius**2


def square(side):
    """The area of a square."""
    return side * side
