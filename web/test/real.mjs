// Starts a real server, fills it with 100,000 samples, failures, videos and a judge that hangs, and has walk.mjs walk
// through its page. Ends with 1 where a check fails or the first paint takes a second (median of five loads).
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { deflateSync } from "node:zlib";
import { chromium } from "playwright-core";

const samples = Number(process.env.REWARDLOOP_WEB_SAMPLES ?? 100_000);
const binary = process.env.REWARDLOOP_BIN ?? new URL("../../bin/rewardloop", import.meta.url).pathname;
const folder = mkdtempSync(join(tmpdir(), "rewardloop-web-"));

// An engine that takes questions and never answers.
const engine = createServer((_, answer) => {
  answer.on("error", () => {});
}).listen(0, "127.0.0.1");
await new Promise((done) => engine.on("listening", done));
const free = createServer().listen(0, "127.0.0.1");
await new Promise((done) => free.on("listening", done));
const port = free.address().port;
await new Promise((done) => free.close(done));
const base = `http://127.0.0.1:${port}`;

writeFileSync(join(folder, "cfg.yaml"), `
engines:
  silent: {base_urls: ["http://127.0.0.1:${engine.address().port}"], model: none, timeout: 8s}
outbound: {allow: ["127.0.0.1"]}
reward:
  reward_functions:
    right: {path: "builtin://gsm8k", weight: 0.8}
    exact: {path: "builtin://math_dapo", weight: 0.2}
rewards:
  pictures:
    reward_functions:
      size: {path: "builtin://jpeg_compressibility", required: true}
      inverse: {path: "builtin://jpeg_incompressibility", weight: 0.5}
  judged:
    reward_functions:
      judge: {path: "builtin://judge", engine: silent, template: "{prompt}", required: true, timeout: 600s}
store: {path: ${join(folder, "store.db")}}
`);
const server = spawn(binary, ["serve", "-c", join(folder, "cfg.yaml"), "--listen", `127.0.0.1:${port}`], { stdio: ["ignore", "ignore", "ignore"] });
let code = 1;
const end = () => {
  server.kill("SIGKILL");
  engine.closeAllConnections();
  engine.close();
  rmSync(folder, { recursive: true, force: true });
};
process.on("SIGTERM", () => { end(); process.exit(1); });

const get = async (path) => (await fetch(base + path)).json();
const until = async (what, holds) => {
  for (const limit = Date.now() + 120_000; Date.now() < limit; await new Promise((done) => setTimeout(done, 100))) {
    try {
      if (await holds()) return;
    } catch { /* it does not listen yet */ }
  }
  throw new Error(`${what} never came`);
};
const score = (body) => fetch(base + "/v1/score", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });

const hostile = ["<script>window.owned=1</script>", "<img src=x onerror=window.owned=1>", "\u202egnp.exe", "a".repeat(3000), "{{constructor}}"];
const pixels = (n, hue) => Buffer.from(Array.from({ length: n }, (_, i) => (i % 3 === hue ? 200 : (i * 7) % 256))).toString("base64");
// A video's frames are files: a PNG without a filter.
const crc = (data) => data.reduce((c, b) => {
  c ^= b;
  for (let k = 0; k < 8; k++) c = c & 1 ? (c >>> 1) ^ 0xedb88320 : c >>> 1;
  return c >>> 0;
}, 0xffffffff) ^ 0xffffffff;
const chunk = (name, data) => {
  const body = Buffer.concat([Buffer.from(name), data]), out = Buffer.alloc(12 + data.length);
  out.writeUInt32BE(data.length, 0);
  body.copy(out, 4);
  out.writeUInt32BE(crc(body) >>> 0, 8 + data.length);
  return out;
};
const png = (hue) => {
  const head = Buffer.alloc(13);
  head.writeUInt32BE(32, 0);
  head.writeUInt32BE(32, 4);
  head.set([8, 2, 0, 0, 0], 8);
  const line = Buffer.concat([Buffer.from([0]), Buffer.from(Array.from({ length: 96 }, (_, i) => (i % 3 === hue ? 220 : 40)))]);
  const file = Buffer.concat([Buffer.from([0x89, 0x50, 0x4e, 0x47, 13, 10, 26, 10]), chunk("IHDR", head), chunk("IDAT", deflateSync(Buffer.concat(Array(32).fill(line)))), chunk("IEND", Buffer.alloc(0))]);
  return { b64: file.toString("base64") };
};
const raw = (hue) => ({ b64: pixels(32 * 32 * 3, hue), encoding: "raw", layout: "HWC", dtype: "U8", shape: [32, 32, 3] });

try {
  await until("the server", async () => (await fetch(base + "/healthz")).ok);
  const perStep = 512;
  for (let sent = 0; sent < samples; sent += 2 * perStep) {
    const list = Array.from({ length: Math.min(2 * perStep, samples - sent) }, (_, i) => {
      const n = sent + i, step = Math.floor(n / perStep) + 1;
      return { id: `${step}/${n % perStep}`, step, index: n % perStep, uid: `g${Math.floor((n % perStep) / 8)}`, group_size: 8, prompt: `${hostile[n % 200] ?? "how many"} ${n}`, response: `so it is #### ${n % 3}`, ground_truth: "1" };
    });
    const answer = await score({ samples: list });
    if (!answer.ok) throw new Error(await answer.text());
  }
  const pictures = await score({ reward: "pictures", samples: Array.from({ length: 64 }, (_, i) => ({ id: `p${i}`, step: 1, uid: `q${i >> 3}`, group_size: 8, prompt: `a picture ${i}`, ...(i % 9 === 8 ? {} : i % 5 === 4 ? { videos: [{ frames: [png(0), png(1), png(2)], fps: 8 }] } : { images: [raw(i % 3)] }) })) });
  if (!pictures.ok) throw new Error(await pictures.text());
  score({ reward: "judged", samples: [1, 2, 3].map((i) => ({ id: `hangs ${i}`, step: 1, prompt: `never answered ${i}` })) }).catch(() => {});
  await until(`${samples} results`, async () => (await get("/v1/overview")).store.rows >= samples + 64);
  await until("a picture", async () => (await get("/v1/results?reward=pictures&limit=1000")).results.some((r) => r.media[0]?.thumbnail));
  await until("what hangs", async () => (await get("/v1/overview")).in_flight > 0);
  console.log(`${(await get("/v1/overview")).store.rows} samples are kept`);

  const browser = await chromium.launch({ executablePath: process.env.CHROMIUM, args: process.getuid?.() === 0 ? ["--no-sandbox"] : [] });
  const paints = [];
  for (let i = 0; i < 5; i++) {
    const page = await browser.newPage();
    await page.goto(base + "/", { waitUntil: "networkidle", timeout: 30_000 }).catch(() => {}); // events never end
    paints.push(await page.evaluate(() => performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? Infinity));
    await page.close();
  }
  await browser.close();
  paints.sort((a, b) => a - b);
  console.log(`first paint after ${Math.round(paints[2])} ms, median of ${paints.map(Math.round).join(", ")}`);
  if (!(paints[2] < 1000)) throw new Error("the first paint took a second or more");

  const walk = spawn(process.execPath, [new URL("walk.mjs", import.meta.url).pathname], { stdio: "inherit", env: { ...process.env, REWARDLOOP_WEB_URL: base } });
  code = await new Promise((done) => walk.on("exit", (c) => done(c ?? 1)));
} catch (error) {
  console.error(error);
}
end();
process.exit(code);
