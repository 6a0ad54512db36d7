import assert from "node:assert/strict";
import { test } from "node:test";
import { load } from "./build.mjs";

const { saidOf } = await load("views/sample.tsx");
const line = { text: "SALE", confidence: 0.9, box: [1, 2, 30, 40] };

test("details by component, and those of one component alone, are read alike", () => {
  const ocr = { target: "SALE", text: "SALE", reader: "ppocr", lines: [line] };
  for (const said of [saidOf({ ocr, judge: { question: "?", answers: [{ text: "4", value: 1 }] } }, ["judge", "ocr"])[0], saidOf(ocr, ["ocr"])[0]]) {
    assert.equal(said.component, "ocr");
    assert.deepEqual(said.lines.get(0), [line]);
    assert.deepEqual([said.targets, said.reader, said.texts.get(0)], [["SALE"], "ppocr", "SALE"]);
    assert.deepEqual(said.rest, {});
  }
});

test("a video's lines are kept by frame", () => {
  const [said] = saidOf({ targets: ["a", "b"], frames_read: 2, frames: [{ frame: 0, value: 1, text: "a", lines: [line] }, { frame: 40, value: 0, text: "", lines: [] }] }, ["ocr"]);
  assert.deepEqual([...said.lines.keys()], [0, 40]);
  assert.deepEqual(said.targets, ["a", "b"]);
});

test("what no view knows is left as it is", () => {
  const [said] = saidOf({ participants: 8, frames: [1, 2], answers: "none" }, []);
  assert.deepEqual(said.rest, { participants: 8, frames: [1, 2] });
});

test("details of any form are read without a fault", () => {
  for (const details of [{}, { ocr: null }, { ocr: 7 }, { lines: [null, 7, { text: 7, box: [1, 2] }, { box: [1, 2, 3, "4"] }] }, { frames: [null, { frame: "0", lines: [] }] }, { answers: [null, [], { text: 7 }] }, { question: {}, targets: [1, null, ""] }]) {
    assert.doesNotThrow(() => saidOf(details, ["ocr"]));
  }
});
