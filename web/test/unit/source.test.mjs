import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { src } from "./build.mjs";

const files = readdirSync(src, { recursive: true }).filter((n) => /\.tsx?$/.test(n)).map((n) => [n, readFileSync(join(src, n), "utf8")]);

test("nothing makes HTML or code of text", () => {
  assert.ok(files.length > 15);
  for (const [name, text] of files) assert.doesNotMatch(text, /innerHTML|outerHTML|dangerouslySetInnerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|srcdoc/, name);
});

test("only the one module asks the server", () => {
  for (const [name, text] of files) if (name !== "api.ts") assert.doesNotMatch(text, /\bfetch\(|XMLHttpRequest|WebSocket\(|EventSource\(|sendBeacon/, name);
});

test("every link is of this page, or went through safe()", () => {
  for (const [name, text] of files) {
    for (const [, value] of text.matchAll(/<a [^>]*?href=(\{[^}]*\}|"[^"]*")/g)) {
      assert.match(value, /^"(#|\?plain)|^\{(to|runLink|stepLink|groupLink|sampleLink|findLink|go|here|link|href|t\.href|from)\b/, `${name}: ${value}`);
      // The server's own links are named l.link and h.link.
      assert.doesNotMatch(value, /[lh]\.link/, name);
    }
  }
});

test("the lock file holds no address to download from", () => {
  assert.doesNotMatch(readFileSync(join(src, "../package-lock.json"), "utf8"), /"resolved"/);
});
