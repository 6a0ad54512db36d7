import assert from "node:assert/strict";
import { test } from "node:test";
import { load } from "./build.mjs";

const { Parser } = await load("live.ts");

function parsed(...chunks) {
  const events = [], parser = new Parser();
  for (const c of chunks) parser.push(c, (name, data) => events.push([name, data]));
  return events;
}

const text = ': hello\r\n\r\nevent: overview\ndata: {"a":\ndata: 1}\n\nid: 7\nevent: results\ndata:{"keys":[1]}\n\n: beat\n\ndata: x\n\n';
const want = [["overview", '{"a":\n1}'], ["results", '{"keys":[1]}'], ["message", "x"]];

test("events are read, comments and empty ones are not", () => assert.deepEqual(parsed(text), want));

test("it does not matter where the stream is cut", () => {
  for (let i = 0; i <= text.length; i++) assert.deepEqual(parsed(text.slice(0, i), text.slice(i)), want, `cut at ${i}`);
  assert.deepEqual(parsed(...text), want);
});

test("what has no end yet is no event", () => assert.deepEqual(parsed("event: overview\ndata: 1\n"), []));

test("an event that never ends is refused", () => {
  assert.throws(() => parsed("data: " + "x".repeat(Parser.longest + 1)), /too long/);
  assert.throws(() => parsed(...Array.from({ length: 10 }, () => "data: " + "x".repeat(1 << 20) + "\n")), /too long/);
});
