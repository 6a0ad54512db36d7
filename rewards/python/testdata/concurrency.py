"""Functions of every kind that counts its calls in another way."""


def bare(data_source, solution_str, ground_truth, extra_info=None):
    return 1.0


async def waiting(data_source, solution_str, ground_truth, extra_info=None):
    return 1.0


def a_wrapper(function):
    return function


hidden = a_wrapper(waiting)


class Judge:
    def compute_score(self, data_source, solution_str, ground_truth, extra_info=None):
        return 1.0
