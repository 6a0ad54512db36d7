import assert from "node:assert/strict";
import { test } from "node:test";
import { load } from "./build.mjs";

const f = await load("format.ts");

test("what is absent is a dash, and never a zero", () => {
  for (const show of [f.score, f.count, f.seconds, f.ms, f.share, f.bytes, f.perSecond]) {
    for (const v of [null, undefined, NaN, Infinity]) assert.equal(show(v), "–", show.name);
    assert.notEqual(show(0), "–", show.name);
  }
});

test("a score that is small is not shown as zero, and what rounding left of zero is", () => {
  assert.equal(f.score(0.5), "0.500");
  assert.equal(f.score(-0.25), "−0.250");
  assert.equal(f.score(12.345), "12.35");
  assert.equal(f.score(0.00004), "4.0e−5");
  assert.equal(f.score(2.5e7), "2.5e7");
  assert.equal(f.score(1.1e-16), "0.000");
});

test("seconds have the unit that a person would choose", () => {
  const want = { 0.0004: "0.4 ms", 0.034: "34 ms", 1.24: "1.2 s", 23.4: "23 s", 250: "4 min 10 s", 7380: "2 h 3 min", 400000: "5 days" };
  for (const [v, text] of Object.entries(want)) assert.equal(f.seconds(Number(v)), text);
  assert.equal(f.seconds(-2), "−2.0 s");
});

test("shares and bytes", () => {
  assert.equal(f.share(0.5), "50 %");
  assert.equal(f.share(0.0132), "1.3 %");
  assert.equal(f.share(0.00001), "< 0.1 %");
  assert.equal(f.bytes(512), "512 B");
  assert.equal(f.bytes(103 * 2 ** 20), "103 MiB");
  assert.equal(f.count(1234567), "1\u202f234\u202f567");
});

test("a long name is cut in the middle, between letters", () => {
  assert.equal(f.middle("short"), "short");
  assert.equal(Array.from(f.middle("x".repeat(500), 20)).length, 20);
  assert.equal(f.middle("😀".repeat(50), 4), "😀😀…😀");
  assert.equal(f.cut("abcdef", 4), "abc…");
});

test("an axis has round numbers, two or more", () => {
  assert.deepEqual(f.ticks(0, 1, 2), [0, 0.5, 1]);
  for (const [lo, hi] of [[0.18, 0.83], [-0.7, 0.6], [0, 3], [0.2999, 0.3001], [-5, 1e6]]) {
    const list = f.fewTicks(lo, hi, 2);
    assert.ok(list.length >= 2 && list.length <= 4, `${lo} to ${hi}: ${list}`);
    assert.ok(list.every((t) => t >= lo && t <= hi));
  }
  assert.deepEqual(f.ticks(1, 1, 3), [1]);
  assert.ok(f.fewTicks(0, 1, 2, true).every(Number.isInteger));
});

test("a time that was never is a dash", () => {
  assert.equal(f.clock("0001-01-01T00:00:00Z"), "–");
  assert.equal(f.clock("nonsense"), "–");
  assert.equal(f.ago("0001-01-01T00:00:00Z"), "–");
  assert.equal(f.ago(new Date(1e12).toISOString(), 1e12 + 75_000), "75 s ago");
});
