"""Rewards of a batch in mini-batches of complete groups, for pipelines and one step off.

The interface is that of the recipe async_reward_agent (haolinyan/verl dcd8dc31): ``compute_reward_pipeline(batch,
group_size)`` immediately returns the number of rows that it accepted; ``get(n, hook)`` returns the rows of finished
groups. Two defects of the recipe are absent: an error ends ``get`` instead of blocking it, and each reward is at the
last valid token of its own row, in whatever order the groups finish.
"""

from __future__ import annotations

import functools
import importlib
import threading
from collections import Counter, deque
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from . import named, rows, steps
from .outcome import STEPS, ExtraInfo
from .session import session
from .settings import Settings

#: What get returns, or hands to the hook: the rows' indices, their rm_scores, and their columns.
Rewards = tuple[list[int], Any, dict[str, Any]]


class Row(NamedTuple):
    """A row with its reward."""

    at: int  # in the batch
    tokens: int  # of the response, without padding; 0: the row is no text
    value: float
    info: ExtraInfo
    #: With stop_ids: places among the tokens, and the scores that stand there instead of value at the last token.
    places: list[int]
    scores: list[float]


class Request:
    """A batch in flight. The agent's condition guards it."""

    def __init__(self, length: int, groups: dict[Any, int]) -> None:
        self.length = length  # of the responses, padding included; 0: no text
        self.missing = groups  # rows without a reward, by group
        self.partial: dict[Any, list[Row]] = {group: [] for group in groups}
        self.finished: deque[list[Row]] = deque()  # complete groups, in the order of their ends
        self.left = sum(groups.values())  # rows that get has not returned
        self.error: BaseException | None = None


class AsyncRewardAgent:
    """Scores batches in the background. Any thread may call; batches are served in order.

    tokenizer is required for text. The settings are keyword arguments: url, run, on_failed, ….
    """

    def __init__(self, tokenizer: Any = None, **settings: Any) -> None:
        self.settings = Settings.read(settings)
        self.settings.need_no_llm(type(self).__name__)
        self._tokenizer = tokenizer
        self._session = session(self.settings)
        self._news = threading.Condition()
        self._requests: deque[Request] = deque()  # guarded by _news
        self._steps = 0  # guarded by _news; requests so far
        self._phase = threading.Lock()
        self._rewarding = False  # guarded by _phase

    def compute_reward_pipeline(self, data: Any, group_size: int = 1) -> int:
        """Accepts a DataProto and returns its number of rows; a new thread submits the rows.

        A group is all rows with one uid, of any number; without uids, a group is group_size consecutive rows.
        """
        n = len(data)
        uids = data.non_tensor_batch.get("uid")
        groups = [i // max(group_size, 1) for i in range(n)] if uids is None else [str(u) for u in uids]
        responses = data.batch["responses"]
        request = Request(int(responses.shape[-1]) if rows.is_tokens(responses) else 0, dict(Counter(groups)))
        with self._news:
            self._steps += 1
            step = self._steps
            if n:
                self._requests.append(request)
        sizes = Counter(groups)
        send = functools.partial(self._send, request, data, groups, sizes, step)
        threading.Thread(target=send, name="rewardloop-pipeline", daemon=True).start()
        return n

    def get(
        self, chunk_size: int, hook_func: Callable[..., Any] | None = None, *, timeout: float | None = None, **kwargs: Any
    ) -> Any:
        """Waits for chunk_size rows of the oldest batch and returns them in the order of the batch.

        Only complete groups are returned, so there may be more than chunk_size rows. The result is (indices, rm_scores,
        columns), or, with hook_func, the result of ``hook_func(indices, rm_scores, columns, **kwargs)``.

        rm_scores is [rows, L] with each score at the last valid token of its row, or [rows, 1] for pictures. With
        stop_ids each step score is at its own position, and the score of a row without step scores is at the last
        position. Raises the error of a failed batch, ValueError for more rows than are left, and TimeoutError after
        timeout seconds (None: the deadlines of the samples limit the wait).
        """
        with self._news:
            if not self._requests:
                raise ValueError("no batch is in flight: call compute_reward_pipeline first")
            request = self._requests[0]
            if not 0 < chunk_size <= request.left:
                raise ValueError(f"chunk_size {chunk_size}: {request.left} rows of the oldest batch are left")
        self._begin_phase(True)
        with self._news:

            def ready() -> bool:
                return request.error is not None or sum(map(len, request.finished)) >= chunk_size

            if not self._news.wait_for(ready, timeout):
                raise TimeoutError(f"no {chunk_size} rows of complete groups within {timeout} s")
            if request.error is not None:
                self._requests.popleft()
            taken: list[Row] = []
            while request.error is None and len(taken) < chunk_size:
                taken.extend(request.finished.popleft())
            request.left -= len(taken)
            if not request.left:
                self._requests.popleft()
            over = not self._requests
        if over:
            self._begin_phase(False)
        if request.error is not None:
            raise request.error
        found = assemble(sorted(taken, key=lambda r: r.at), request.length)
        return found if hook_func is None else hook_func(*found, **kwargs)

    def _begin_phase(self, reward: bool) -> None:
        """Tells the server of another phase, where it shares the trainer's cards."""
        if self.settings.colocated:
            with self._phase:
                if self._rewarding != reward:
                    self._session.client().phase("reward" if reward else "rollout")
                    self._rewarding = reward

    def _send(self, request: Request, data: Any, groups: list[Any], sizes: Counter[Any], step: int) -> None:
        """Submits all rows. Runs in a thread of its own; whatever it raises goes to get."""
        try:
            client = self._session.client()
            decode = None
            if self._tokenizer is not None:
                decode = functools.partial(self._tokenizer.decode, skip_special_tokens=True)
            client.step(step, len(data), total=True)
            for index, group in enumerate(groups):
                item = data[index]
                sample = rows.to_sample(item, self.settings, decode=decode)
                sample.step, sample.index = step, index
                sample.uid, sample.group_size = f"{step}/{group}", sizes[group]
                ids = rows.valid_tokens(item) if request.length else ()
                at = steps.places(ids, self.settings.stop_ids) if self.settings.stop_ids and sample.split != "val" else []
                row = Row(index, len(ids), 0.0, ExtraInfo(), at, [])
                take = functools.partial(self._take, request, group, row, sample, len(data))
                client.submit(sample).add_done_callback(take)
        except BaseException as err:
            self._fail(request, err)

    def _take(self, request: Request, group: Any, row: Row, sample: Any, n: int, done: Any) -> None:
        """Takes the result of a row. Runs in the client's thread."""
        try:
            value, info = self._session.judge(sample, done.result(0), n)
            if row.places:
                where, scores = steps.standing(str(info[STEPS]), value, row.places, f"sample {sample.id} (row {row.at})")
                row = row._replace(places=where, scores=scores)
        except BaseException as err:
            self._fail(request, err)
            return
        with self._news:
            request.partial[group].append(row._replace(value=value, info=info))
            request.missing[group] -= 1
            if not request.missing[group]:
                rows_of = request.partial.pop(group)
                named.fill_rows([r.info for r in rows_of], self.settings.gdpo_reward_keys)
                request.finished.append(rows_of)
                self._news.notify_all()

    def _fail(self, request: Request, err: BaseException) -> None:
        with self._news:
            request.error = request.error or err
            self._news.notify_all()


def assemble(found: list[Row], length: int) -> Rewards:
    """Returns the indices, the tensor and the columns of rows."""
    torch = importlib.import_module("torch")
    scores = torch.zeros(len(found), length or 1, dtype=torch.float32)
    for i, row in enumerate(found):
        if row.scores:
            scores[i, row.places] = torch.tensor(row.scores, dtype=torch.float32)
        else:
            scores[i, row.tokens - 1 if length else 0] = row.value
    names = sorted({name for row in found for name in row.info})
    columns = {name: np.array([row.info[name] for row in found]) for name in names}
    return [row.at for row in found], scores, columns
