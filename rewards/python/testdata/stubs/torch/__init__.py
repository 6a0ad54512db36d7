"""What profiles of Python processes need of torch, for machines without it."""

multiplied = []
profiled = False


class Number:
    def __init__(self, value):
        self.value = value

    def item(self):
        return self.value


def tensor(rows):
    return rows


def mm(a, b):
    multiplied.append("aten::mm")
    return Number(a[0][0] * b[0][0])


class cuda:
    @staticmethod
    def is_available():
        return False


class autograd:
    @staticmethod
    def _profiler_enabled():
        return profiled
