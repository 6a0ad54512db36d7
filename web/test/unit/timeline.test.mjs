import assert from "node:assert/strict";
import { test } from "node:test";
import { load } from "./build.mjs";

const { layout, spansOf } = await load("timeline.tsx");
const span = (id, generated_s, worker, attempts, more = {}) => ({ id, generated_s, queued_s: generated_s, worker, attempts, outcome: "scored", returned_s: attempts.at(-1)?.ended_s, ...more });
const attempt = (worker, started_s, ended_s, outcome = "scored") => ({ worker, started_s, ended_s, outcome });

test("what a worker does at the same time lies on lanes beside each other", () => {
  const drawn = layout([span("a", 0, "w1", [attempt("w1", 1, 5)]), span("b", 1, "w1", [attempt("w1", 2, 4)]), span("c", 2, "w1", [attempt("w1", 5, 6)]), span("d", 3, "w2", [attempt("w2", 3, 9)])], []);
  assert.deepEqual(drawn.tracks.map((t) => [t.worker, t.lanes]), [["w1", 2], ["w2", 1]]);
  assert.deepEqual(drawn.tracks[0].pieces.map((p) => [p.id, p.lane]), [["a", 0], ["b", 1], ["c", 0]]);
  assert.deepEqual([drawn.last, drawn.end], [3, 9], "the last sample arrived at 3, the last result at 9");
});

test("a failed attempt is told from the one that counted and from one that came late", () => {
  const drawn = layout([span("a", 0, "w2", [attempt("w1", 1, 2, "failed"), attempt("w3", 1, 3, "late"), attempt("w2", 2, 3)], { stages_s: { decode: 0.25 } })], []);
  assert.deepEqual(drawn.tracks.map((t) => [t.worker, t.pieces[0].failed, t.pieces[0].attempt]), [["w1", true, 1], ["w2", false, 3], ["w3", false, 2]]);
  assert.equal(drawn.tracks[1].pieces[0].decoded, 2.25);
});

test("a sample without a result is drawn up to now, with its worker or as waiting", () => {
  const open = { returned_s: undefined, outcome: undefined };
  const drawn = layout([span("a", 2, undefined, [attempt("w1", 3, 5, "failed")], open), span("b", 4, undefined, [], open)], [{ id: "a", stage: "running", age_ms: 10_000, worker: "w1" }, { id: "b", stage: "queued", age_ms: 8_000 }, { stage: "missing" }]);
  assert.deepEqual(drawn.tracks[0].pieces.map((p) => [p.from, p.to, p.open, p.failed]), [[3, 5, false, true], [5, 12, true, false]]);
  assert.deepEqual(drawn.waiting, [{ id: "b", from: 4, to: 12, why: "queued" }]);
  assert.equal(drawn.end, 12);
});

test("where the trace is gone, rows of the store say when what happened", () => {
  const rows = [
    { id: "a", uid: "g", worker: "w", outcome: "scored", arrived: "2026-01-01T00:00:00Z", finished: "2026-01-01T00:00:04Z", timing_ms: { queue: 1000, score: 2500, decode: 500 } },
    { id: "b", uid: "g", worker: "w", outcome: "failed", arrived: "2026-01-01T00:00:02Z", finished: "2026-01-01T00:00:03Z", timing_ms: {} },
    { id: "c", uid: "g", worker: "w", outcome: "scored", arrived: "", finished: "", timing_ms: {} },
  ];
  const spans = spansOf(rows);
  assert.deepEqual(spans.map((s) => [s.id, s.generated_s, s.started_s, s.scored_s, s.returned_s]), [["a", 0, 1, 3.5, 4], ["b", 2, 2, 3, 3]]);
  const [track] = layout(spans, []).tracks;
  assert.deepEqual(track.pieces.map((p) => p.failed), [false, true]);
  assert.deepEqual(spansOf([]), []);
});
