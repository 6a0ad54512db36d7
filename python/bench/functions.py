"""The trivial reward functions that make bench-python calls."""


def nothing(ground_truth):
    """A small payload."""
    return 0.0


def first_byte(solution_image):
    """A payload of 786 KB, of which one byte is looked at."""
    return float(solution_image[0, 0, 0])
