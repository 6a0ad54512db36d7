import assert from "node:assert/strict";
import { test } from "node:test";
import { load } from "./build.mjs";

const r = await load("route.ts");

test("a link and what it is read as are the same, whatever the names hold", () => {
  for (const run of ["plain", "team/edit-lora", "a b?c#d&e=f%2F", '<img src=x onerror="1">', "ü😀", "%E0%A4%A"]) {
    assert.deepEqual(r.parse(r.runLink(run)), { path: ["run", run], query: {} });
    assert.deepEqual(r.parse(r.groupLink(run, 7, run, "val", "17650")), { path: ["run", run, "step", "7", "group", run], query: { split: "val", epoch: "17650" } });
    assert.deepEqual(r.parse(r.to(["samples"], { run, q: run, step: undefined })), { path: ["samples"], query: { run, q: run } });
  }
});

test("the words of the API lead to the same views", () => {
  assert.deepEqual(r.parse("#/runs/a/steps/3/groups/g").path, ["run", "a", "step", "3", "group", "g"]);
  assert.deepEqual(r.parse("#/results/12").path, ["sample", "12"]);
  assert.deepEqual(r.parse("#/results?run=runs").path, ["samples"]);
  assert.deepEqual(r.parse("#/run/runs").path, ["run", "runs"], "a run may have such a name");
  assert.deepEqual(r.parse("#/constructor").path, ["constructor"]);
});

test("an address that cannot be decoded is taken as it is", () => {
  assert.deepEqual(r.parse("#/run/%E0%A4%A").path, ["run", "%E0%A4%A"]);
  assert.deepEqual(r.parse("").path, []);
  assert.deepEqual(r.parse("#/run").path, []);
});

test("a link of the server's leads into this page or nowhere", () => {
  assert.equal(r.safe("#/run/a"), "#/run/a");
  for (const link of ["javascript:alert(1)", "https://example.org/", "//example.org", "data:text/html,x", "#x", "", null, undefined, 7, { startsWith: () => true }]) assert.equal(r.safe(link), undefined);
});
