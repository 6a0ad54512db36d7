// A server of generated data that answers as rewardloop does: the fixture of the page's tests, and
// something to develop against. `node test/mock.mjs [PORT]` serves web/dist at / and the API
// beside it. What is generated is the same each time, but for the clock.
//
//   /_mock?events=off|on      whether /v1/events is there
//   /_mock?state=full|empty|off   all runs; a server that has seen nothing; one without a store
//   /_mock?token=…            what requests must show; empty: nothing
import { readFileSync, readdirSync } from "node:fs";
import { createServer } from "node:http";
import { dirname, extname, join } from "node:path";
import { fileURLToPath } from "node:url";

const dist = join(dirname(fileURLToPath(import.meta.url)), "../dist");
export const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; connect-src 'self'; " +
  "frame-ancestors 'none'; base-uri 'none'; form-action 'none'";

// Strings of a stranger who wants a page to run them.
export const hostile = `<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>'"&{{.}}</td>`;
export const hostileRun = `evil/<svg onload=window.hacked=1>/${"x".repeat(70)}`;

function random(seed) {
  let a = seed >>> 0;
  return () => {
    a = (a + 0x6d2b79f5) | 0;
    let t = Math.imul(a ^ (a >>> 15), 1 | a);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}
const gauss = (r) => (r() + r() + r() + r() - 2) * 1.4;
const clamp = (v, lo = 0, hi = 1) => Math.max(lo, Math.min(hi, v));
const mean = (l) => (l.length ? l.reduce((a, b) => a + b, 0) / l.length : null);
const std = (l) => (l.length ? Math.sqrt(mean(l.map((v) => (v - mean(l)) ** 2))) : null);
const at = (l, p) => (l.length ? [...l].sort((a, b) => a - b)[Math.min(l.length - 1, Math.floor(p * l.length))] : null);

const signs = ["OPEN 24H", "FRESH BREAD", "NO EXIT", "ROUTE 66", "COLD BREW", "BOOKS", "LAST CALL", "STATION"];
const scenes = ["a neon sign above a diner at night", "a chalkboard in front of a bakery", "a street sign in the fog", "a poster on a brick wall", "a label on a glass bottle", "a shop window in the rain", "a banner over a market", "a ticket lying on a table"];

// The runs: what they are scored by, how many steps there are, and what is wrong with them.
const specs = [
  { run: "flux-ocr-grpo", reward: "ocr_mix", parts: ["ocr", "clip", "judge"], weights: [0.6, 0.2, 0.2], steps: 24, groups: 8, size: 8, kind: "image", seed: 1, live: true, gain: 0.4 },
  { run: "wan-video/motion", reward: "video", parts: ["motion", "ocr"], weights: [0.5, 0.5], steps: 9, groups: 4, size: 8, kind: "video", seed: 2, live: true, gain: 0.2 },
  { run: "qwen-text-verify", reward: "verify", parts: ["verify"], weights: [1], steps: 14, groups: 6, size: 8, kind: "text", seed: 3, live: false, gain: 0.3 },
  { run: "flux-ocr-grpo-lr5e-5", reward: "ocr_mix", parts: ["ocr", "clip", "judge"], weights: [0.6, 0.2, 0.2], steps: 20, groups: 8, size: 8, kind: "image", seed: 4, live: false, gain: 0.22 },
  { run: hostileRun, reward: hostile, parts: [hostile, "b"], weights: [0.5, 0.5], steps: 3, groups: 2, size: 4, kind: "image", seed: 5, live: false, gain: 0, hostile: true },
];

const workers = ["gpu-a/0", "gpu-a/1", "gpu-b/0", "gpu-b/1"];
const judgeError = "engine judge at http://10.0.0.7:8000/v1/chat/completions: no answer for 8 s (3 tries of 8 s); the engine has 32 requests under way. Raise judge.timeout or look at GET /v1/engines";

function generate(now) {
  const rows = [], traces = new Map(), stats = [];
  let key = 1000;
  for (const spec of specs) {
    const r = random(spec.seed * 7919);
    const splits = spec.seed === 1 ? ["train", "val"] : ["train"];
    for (const split of splits) {
      for (let step = 1; step <= spec.steps; step++) {
        if (split === "val" && step % 6 !== 0) continue;
        const last = step === spec.steps && split === "train";
        const running = last && spec.live && spec.seed === 1;
        const begun = now - ((spec.steps - step) * 95 + (spec.live ? (running ? 42 : 60) : 90_000 * spec.seed)) * 1000;
        const spans = [], without = [], mine = [];
        const free = new Map(workers.map((w) => [w, [0, 0, 0, 0]]));
        const rollout = 24 + 6 * r();
        for (let g = 0; g < spec.groups; g++) {
          const flat = spec.size > 4 && (step > spec.steps * 0.6 ? r() < 0.28 : r() < 0.06);
          const skill = 0.28 + spec.gain * (1 - Math.exp(-step / 8)) + 0.07 * gauss(r);
          const word = signs[(g + step) % signs.length];
          const prompt = spec.hostile ? hostile + " " + "unbreakable".repeat(20)
            : spec.kind === "text" ? `Solve for x and give the answer in \\boxed{}: ${g + 2}x + ${step} = ${(g + 2) * 7 + step}. Show each step of the derivation.`
            : `${scenes[(g * 3 + step) % scenes.length]}, the words "${word}" written on it in large letters, photograph, 35 mm, soft light from the left`;
          const uid = spec.hostile ? hostile + g : `s${step}-${split === "val" ? "v" : "p"}${String(g).padStart(3, "0")}`;
          const same = clamp(skill + 0.2);
          for (let i = 0; i < spec.size; i++) {
            const index = g * spec.size + i;
            const id = spec.hostile ? `${hostile}/${step}/${index}` : `step${step}/${uid}/${i}`;
            const arrived = 1 + (rollout - 1) * clamp((index + 0.5 * gauss(r)) / (spec.groups * spec.size));
            const queued = arrived + 0.01;
            // A worker's place that is free first.
            let worker = workers[0], place = 0, best = Infinity;
            for (const [w, places] of free) places.forEach((t, k) => { if (t < best) [best, worker, place] = [t, w, k]; });
            const decode = 0.12 + 0.3 * r() + (spec.kind === "video" ? 0.9 : 0);
            const took = decode + 1.1 + 1.6 * r() + (r() < 0.06 ? 5 * r() : 0);
            const started = Math.max(queued + 0.03, best);
            const attempts = [];
            let fails = null, tries = 1, from = started;
            const hang = running && index === spec.groups * spec.size - 3;
            const trouble = spec.hostile ? r() < 0.3 : r() < (spec.seed === 1 && step > 18 ? 0.055 : 0.018);
            if (trouble) {
              fails = spec.hostile ? { component: hostile, class: "scorer_failed", blame: "reward", message: hostile }
                : spec.kind === "text" ? { component: "verify", class: "malformed_output", blame: "sample", message: `ValueError: no \\boxed{} in the answer\n  File "verify.py", line 41, in score\n    return float(found.group(1))` }
                : r() < 0.7 ? { component: spec.parts.includes("judge") ? "judge" : "motion", class: "timeout", blame: "engine", message: spec.parts.includes("judge") ? judgeError : "the optical flow took longer than 30 s on 81 frames of 832 × 480" }
                : { component: "ocr", class: "crashed", blame: "worker", message: "the child that reads text was killed by signal 9 (out of memory?) at picture 1 of 1, 1024 × 1024" };
              tries = fails.class === "timeout" ? 3 : 2;
              for (let k = 0; k < tries; k++) {
                const ended = from + (fails.class === "timeout" ? 2.6 : 0.8);
                attempts.push({ worker, started_s: from, ended_s: ended, outcome: "failed" });
                from = ended + 0.05;
              }
            } else if (r() < 0.04) {
              attempts.push({ worker, started_s: from, ended_s: from + 0.9, outcome: "lost" });
              tries = 2;
              from += 0.95;
            }
            const scored = fails ? attempts[attempts.length - 1].ended_s : from + took;
            if (!fails) attempts.push({ worker, started_s: from, ended_s: scored, outcome: "scored" });
            free.get(worker)[place] = scored;
            const span = { id, uid, generated_s: arrived, queued_s: queued, worker, attempts };
            if (hang || (running && index === spec.groups * spec.size - 1)) {
              // It waits for the judge, or for a place.
              spans.push({ id, uid, generated_s: arrived, queued_s: queued, attempts: hang ? [{ worker, started_s: started, ended_s: started + 8, outcome: "failed" }] : [] });
              without.push({ id, index, uid, stage: hang ? "running" : "queued", age_ms: (42 - arrived) * 1000, worker: hang ? worker : undefined });
              continue;
            }
            spans.push({ ...span, started_s: fails ? undefined : from, scored_s: fails ? undefined : scored, returned_s: scored + 0.02, outcome: fails ? "failed" : "scored", stages_s: { claim: 0.02, decode, ...Object.fromEntries(spec.parts.map((p) => [`component/${p}`, took * (0.5 + 0.4 * r())])) } });
            const components = {};
            let score = fails ? null : 0;
            spec.parts.forEach((p, k) => {
              const failed = fails && fails.component === p;
              let v = flat ? same : clamp(skill + 0.16 * gauss(r) + (p === "clip" ? 0.05 : 0));
              if (p === "clip") v = 0.18 + v * 0.18;
              if (p === "judge") v = Math.round(v * 4) / 4;
              if (p === "verify") v = flat ? 1 : v > 0.45 ? 1 : 0;
              if (p === "motion") v = (v - 0.4) * 3;
              if (spec.hostile) v = r();
              components[p] = failed ? null : flat && p === "clip" ? 0.31 : v;
              if (score !== null && components[p] !== null) score += spec.weights[k] * components[p];
            });
            const t0 = begun + arrived * 1000;
            const read = r() < 0.5 ? word : word.replace("E", "F").replace("O", "0").slice(0, Math.max(2, Math.round(word.length * (0.5 + 0.5 * r()))));
            const row = {
              key: ++key, run: spec.run, epoch: "17650000" + spec.seed, step, split, id, index, uid, group_size: spec.size, reward: spec.reward,
              data_source: spec.kind === "text" ? "gsm-lines" : "ocr_prompts", prompt,
              response: spec.kind === "text" ? `We subtract ${step} from both sides and divide by ${g + 2}.\n\nx = (${(g + 2) * 7 + step} − ${step}) / ${g + 2}\n\n${fails ? "So the answer is seven." : `\\boxed{${components.verify ? 7 : 6 + i}}`}` : spec.hostile ? hostile : "",
              outcome: fails ? "failed" : "scored", score, components, fallback: fails && spec.seed === 2 ? { policy: "group_mean", value: 0.41 } : null, error: fails, worker: spec.hostile ? hostile : worker, attempts: tries,
              timing_ms: { queue: (started - arrived) * 1000, decode: decode * 1000, score: (scored - started) * 1000, total: (scored - arrived) * 1000, batch_wait: 18, ...Object.fromEntries(spec.parts.map((p, k) => [`component/${p}`, Math.max(60, (scored - started) * 1000 * [0.92, 0.4, 0.7][k])])) },
              arrived: new Date(t0).toISOString(), finished: new Date(begun + scored * 1000).toISOString(), config: "sha256:9d1c4b7e02aa51f0c3d9",
              media: spec.kind === "text" ? [] : [{ n: 0, kind: spec.kind, frames: spec.kind === "video" ? 81 : 1, width: spec.kind === "video" ? 832 : 768, height: spec.kind === "video" ? 480 : 768, thumbnail: `/v1/results/${key}/media/0`, full: `/v1/results/${key}/media/0?full=1` }],
              _word: word, _read: read, _hue: (g * 47 + step * 31) % 360, _i: i,
            };
            mine.push(row);
          }
        }
        const end = running ? 42 : Math.max(...spans.map((s) => s.returned_s ?? 0)), came = Math.max(...spans.map((s) => s.generated_s));
        traces.set(JSON.stringify([spec.run, split, step]), { trace: { run: spec.run, split, step, servers: 16, expected: spec.groups * spec.size, spans }, without, end, came });
        stats.push({ spec, split, step, mine, end, came, running });
        rows.push(...mine);
      }
    }
  }
  return { rows, traces, stats };
}

function groupsOf(rows) {
  const by = new Map();
  for (const row of rows) by.set(row.uid, [...(by.get(row.uid) ?? []), row]);
  return [...by].map(([uid, members]) => {
    const scores = members.flatMap((m) => (m.score === null ? [] : [m.score]));
    return { uid, prompt: members[0].prompt, size: members[0].group_size, mean: mean(scores), std: std(scores), zero_std: scores.length > 1 && std(scores) < 1e-9, members: members.map((m) => ({ key: m.key, id: m.id, index: m.index, score: m.score, outcome: m.outcome })) };
  });
}

function historyOf(stat) {
  const { spec, step, mine, end, came, running } = stat;
  const scores = mine.flatMap((m) => (m.score === null ? [] : [m.score]));
  const groups = groupsOf(mine);
  const components = {};
  for (const p of spec.parts) {
    const v = mine.flatMap((m) => (m.components[p] === null ? [] : [m.components[p]]));
    components[p] = { mean: mean(v), std: std(v), min: at(v, 0), max: at(v, 1), p10: at(v, 0.1), p50: at(v, 0.5), p90: at(v, 0.9), failed: mine.length - v.length };
  }
  return { step, epoch: mine[0]?.epoch ?? "", samples: mine.length, scored: scores.length, failed: mine.length - scores.length, mean: mean(scores), std: std(scores), min: at(scores, 0), max: at(scores, 1), groups: groups.length, zero_std_groups: groups.filter((g) => g.zero_std).length, components, exposed_s: running ? null : end - came, rollout_s: came, makespan_s: running ? null : end };
}

function histogram(values, failed) {
  const lo = Math.min(...values), hi = Math.max(...values), counts = Array(30).fill(0);
  for (const v of values) counts[Math.min(29, Math.floor(((v - lo) / (hi - lo || 1)) * 30))]++;
  return { lo, hi, counts, n: values.length, failed };
}

// drawing is a picture as SVG: a scene with a sign on it. Browsers take it as they take a JPEG.
function drawing(row, frames, from = 0, width = 256) {
  const video = row.media[0].kind === "video";
  const w = video ? 832 : 768, h = video ? 480 : 768;
  const esc = (s) => s.replace(/[<>&"']/g, (c) => `&#${c.charCodeAt(0)};`);
  const frame = (k) => {
    const t = video ? (from + k) / 8 : 0, hue = row._hue, x = 0.12 * w + t * 0.2 * w, y = h * 0.36;
    const r = random(row.key * 31 + 7), stars = Array.from({ length: 26 }, () => `<circle cx="${(r() * w).toFixed(0)}" cy="${(r() * h * 0.6).toFixed(0)}" r="${(r() * 3).toFixed(1)}" fill="#fff" opacity=".5"/>`).join("");
    return `<g transform="translate(${k * w},0)"><rect width="${w}" height="${h}" fill="url(#g)"/>${stars}
<path d="M0,${h * 0.78} C${w * 0.3},${h * (0.68 + 0.05 * row._i / 8)} ${w * 0.6},${h * 0.86} ${w},${h * 0.74} V${h} H0 Z" fill="hsl(${(hue + 150) % 360} 28% 20%)"/>
<circle cx="${w * (0.75 - 0.3 * t)}" cy="${h * 0.2}" r="${h * 0.07}" fill="hsl(${(hue + 40) % 360} 85% 78%)"/>
<rect x="${x}" y="${y}" width="${w * 0.62}" height="${h * 0.24}" rx="14" fill="hsl(${hue} 35% 12%)" stroke="hsl(${(hue + 180) % 360} 80% 70%)" stroke-width="8"/>
<text x="${x + w * 0.31}" y="${y + h * 0.155}" font-family="DejaVu Sans, sans-serif" font-weight="700" font-size="${h * 0.09}" text-anchor="middle" textLength="${w * 0.54}" lengthAdjust="spacingAndGlyphs" fill="hsl(${(hue + 180) % 360} 90% 78%)">${esc(row._read)}</text></g>`;
  };
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${w * frames} ${h}" width="${width * frames}" height="${Math.round((width * h) / w)}">
<defs><linearGradient id="g" x2="0" y2="1"><stop offset="0" stop-color="hsl(${row._hue} 55% ${18 + row._i * 3}%)"/><stop offset="1" stop-color="hsl(${(row._hue + 60) % 360} 50% ${38 + row._i * 2}%)"/></linearGradient></defs>
${Array.from({ length: frames }, (_, k) => frame(k)).join("")}</svg>`;
}

function whole(row, all) {
  const details = {};
  const line = (shift) => [{ text: row._read, confidence: 0.93, box: [92 + shift, 277, 92 + shift + 476, 277 + 184] }, ...(row._i % 3 === 0 ? [{ text: "35mm", confidence: 0, box: [560, 700, 690, 748] }] : [])];
  if ("ocr" in row.components && row.components.ocr !== null) {
    details.ocr = row.media[0].kind === "video"
      ? { target: row._word, reader: "ppocr", frames_read: 8, frames: Array.from({ length: 8 }, (_, k) => ({ frame: Math.round((k * 80) / 7), value: 0.7, text: row._read, lines: [{ text: row._read, confidence: 0.9, box: [100 + k * 21, 173, 100 + k * 21 + 516, 173 + 115] }] })) }
      : { target: row._word, text: row._read, reader: "ppocr", lines: line(0) };
  }
  if ("judge" in row.components && row.components.judge !== null) details.judge = { question: `Here is a picture that was made for the prompt: ${row.prompt}\n\nDoes the picture show what was asked for? Answer with a number from 0 to 4.`, system: "You rate pictures. You answer with one number and one sentence.", asked: 1, answers: [{ value: row.components.judge, text: `${row.components.judge * 4}\nThe sign is there, and ${row._read === row._word ? "its letters are right" : "its letters are not all right"}.`, reasoning: "The prompt asks for a sign with words. I look for the sign first, then I compare the letters one by one.", tries: 1, cached: row._i === 2 }] };
  if ("verify" in row.components) details.answer = "7", details.checked = ["boxed", "number"];
  if (row.run === hostileRun) details[hostile] = { text: hostile, lines: [{ text: hostile, confidence: 1, box: [10, 10, 300, 80] }], question: hostile, answers: [{ text: hostile, value: 1, tries: 1 }], [hostile]: hostile };
  const group = groupsOf(all.filter((o) => o.run === row.run && o.step === row.step && o.split === row.split && o.uid === row.uid))[0];
  const scored = group.members.filter((m) => m.score !== null).length;
  return { ...shown(row), ground_truth: row.media.length ? { target: row._word } : "7", extra_info: { seed: 1000 + row.index, scheduler: "flow-match" }, extra: { "ocr/distance": 0.25, acc: row.score, "rewardloop/imputed": false }, details,
    errors: row.error ? [{ ...row.error, attempts: row.attempts, permanent: false }] : [], step_scores: row.media.length && row._i % 2 === 0 ? Array.from({ length: 10 }, (_, k) => (row.score ?? 0.3) * (0.4 + 0.06 * k)) : null,
    group: { uid: group.uid, size: group.size, scored, failed: group.members.length - scored, mean: group.mean, std: group.std, zero_std: group.zero_std, missing: 0 }, code: { reward: "sha256:51c0" } };
}

function shown(row) {
  const { _word, _read, _hue, _i, ...rest } = row;
  return rest;
}

// mock starts a server and returns its address.
export async function mock({ port = 0, beat = 1000 } = {}) {
  let began = Date.now();
  const { rows, traces, stats } = generate(began);
  const control = { state: "full", events: "on", token: "" };
  const sockets = new Set();
  let late = 0; // rows that came while the server ran
  const elapsed = () => (Date.now() - began) / 1000;
  const empty = () => control.state === "empty", off = () => control.state === "off";
  const kept = () => (empty() || off() ? [] : rows);

  function overview() {
    const wait = 23 + Math.floor(elapsed());
    const live = stats.filter((s) => s.spec.live && s.split === "train" && s.step === s.spec.steps);
    const base = { now: new Date().toISOString(), version: "v1.4.0-mock", ready: !empty(), reasons: empty() ? ["none of 0 workers is ready"] : [], in_flight: 0, waiting: 0, running: 0, slots: 0, busy: 0, samples_per_s: null, scored_total: 0, failed_total: 0, held_bytes: 0, runs: [], status: [{ level: empty() ? "wait" : "ok", text: "no run has sent samples yet" }], store: { on: !off(), rows: 0, bytes: 0, limit_bytes: 20 * 2 ** 30, dropped: 0, error: "" } };
    if (empty()) return base;
    return {
      ...base, in_flight: 2, waiting: 1, running: 1, slots: 16, busy: 1 + (Math.floor(elapsed()) % 3), samples_per_s: 12.3 + (Math.floor(elapsed()) % 5) / 10, scored_total: 18204 + Math.floor(elapsed()) * 3, failed_total: failures().total, held_bytes: 103 << 20,
      status: [
        { level: "bad", text: `step 24 of run flux-ocr-grpo waits ${wait} s for 2 samples: judge timed out 3 × 8 s`, link: "#/run/flux-ocr-grpo/step/24" },
        { level: "wait", text: "reward ocr_mix: 5.5 % of the samples of the last 6 steps failed, most of them by judge", link: "#/samples?run=flux-ocr-grpo&failed=1" },
        { level: "ok", text: "run wan-video/motion is well: rewards add 0.9 s to the step" },
        { level: "ok", text: hostile, link: "javascript:window.hacked=1" },
      ],
      runs: live.map((s) => {
        const h = historyOf(s);
        return { run: s.spec.run, step: s.step, split: "train", samples: h.samples, expected: s.spec.groups * s.spec.size, mean: h.mean, std: h.std, exposed_s: s.running ? wait - 9 : h.exposed_s, exposed_share: s.running ? (wait - 9) / (wait + 20) : h.exposed_s / h.makespan_s, failed_share: h.failed / h.samples, groups: h.groups, zero_std_groups: h.zero_std_groups };
      }),
      store: off() ? base.store : { on: true, rows: rows.length + late, bytes: 1.4 * 2 ** 30, limit_bytes: 20 * 2 ** 30, dropped: 0, error: "" },
    };
  }

  function select(q) {
    let list = kept();
    const is = (name, f) => { if (q.get(name)) list = list.filter((r) => f(r, q.get(name))); };
    is("run", (r, v) => r.run === v);
    is("split", (r, v) => r.split === v);
    is("step", (r, v) => String(r.step) === v);
    is("uid", (r, v) => r.uid === v);
    is("epoch", (r, v) => r.epoch === v);
    is("outcome", (r, v) => r.outcome === v);
    if (q.has("reward")) list = list.filter((r) => r.reward === q.get("reward"));
    if (q.get("failed") === "1") list = list.filter((r) => r.outcome !== "scored");
    is("q", (r, v) => [r.prompt, r.id, r.response].some((t) => t.includes(v)));
    const spread = (r) => { const v = Object.values(r.components).filter((x) => x !== null); return v.length > 1 ? Math.max(...v) - Math.min(...v) : -1; };
    const orders = { newest: (a, b) => b.finished.localeCompare(a.finished), oldest: (a, b) => a.finished.localeCompare(b.finished), best: (a, b) => (b.score ?? -9) - (a.score ?? -9), worst: (a, b) => (a.score ?? 9) - (b.score ?? 9), slowest: (a, b) => b.timing_ms.total - a.timing_ms.total, disagreeing: (a, b) => spread(b) - spread(a) };
    list = [...list].sort(orders[q.get("sort") ?? "newest"] ?? orders.newest);
    const limit = Number(q.get("limit") ?? 50), offset = Number(q.get("offset") ?? 0);
    return { total: list.length, results: list.slice(offset, offset + limit).map(shown) };
  }

  function failures() {
    if (empty()) return { total: 0, failures: [] };
    const by = new Map();
    for (const r of rows) if (r.error) by.set(r.reward + r.error.component + r.error.class, [...(by.get(r.reward + r.error.component + r.error.class) ?? []), r]);
    const list = [...by.values()].map((l) => {
      const e = l[0].error, newest = [...l].sort((a, b) => b.key - a.key);
      return { reward: l[0].reward, component: e.component, class: e.class, blame: e.blame, shape: e.message.slice(0, 60), message: e.message, count: l.length, scored: 1100, first: newest[newest.length - 1].finished, last: newest[0].finished, workers: [...new Set(l.map((r) => r.worker))], samples: newest.slice(0, 8).map((r) => ({ id: r.id, run: r.run, step: r.step, split: r.split, worker: r.worker, attempts: r.attempts, outcome: "failed", at: r.finished })) };
    });
    return { total: list.reduce((n, f) => n + f.count, 0), failures: list.sort((a, b) => b.last.localeCompare(a.last)) };
  }

  const crew = () => (empty() ? [] : [...workers, hostile].map((id, i) => ({ id, busy: i === 1 ? 1 : 0, state: i === 3 ? "draining" : "ready", profiles: [{ name: "ocr_mix", queue: "q", capacity: 4 }, { name: "video", queue: "v", capacity: 4, waits: i === 4 ? "the module cv2 is not there: pip install opencv-python" : undefined }, { name: "_selftest", queue: "s", capacity: 1 }], host: id.split("/")[0].slice(0, 40), devices: ["cuda:" + i + " (NVIDIA L4, 23 GiB)"], models: ["clip-vit-l-14", "pp-ocrv5"], version: "v1.4.0-mock", scored: 4200 + i * 31, failed: i * 7, started: new Date(began - 4e6).toISOString(), seen: new Date().toISOString() })));

  const api = {
    "/v1/overview": () => overview(),
    "/v1/failures": (q) => { const f = failures(); return q.has("reward") ? { ...f, failures: f.failures.filter((o) => o.reward === q.get("reward")) } : f; },
    "/v1/workers": () => ({ workers: crew(), breakers: empty() ? [] : [{ worker: "gpu-b/1", reward: "ocr_mix", state: "open", reason: "the card is lost: CUDA error 719 at clip-vit-l-14", since: new Date(began - 90_000).toISOString(), until: new Date(began + 30_000).toISOString() }, { worker: hostile, reward: hostile, state: "open", reason: hostile, since: new Date(began).toISOString(), until: new Date(began).toISOString(), permanent: true }] }),
    "/v1/engines": () => ({ servers: empty() ? [] : [
      { engine: "judge", kind: "vllm", model: "Qwen/Qwen2.5-VL-7B-Instruct", name: "judge-0", url: "http://127.0.0.1:41001", state: "ready", since: new Date(began - 3.6e6).toISOString(), starts: 2, pid: 4711, in_flight: 32, requests: 18211, failures: 61, log: "/var/log/rewardloop/engines/judge-0.log" },
      { engine: "judge", kind: "vllm", model: "Qwen/Qwen2.5-VL-7B-Instruct", name: "judge-1", url: "http://127.0.0.1:41002", state: "restarting", since: new Date(began - 12_000).toISOString(), starts: 5, in_flight: 0, requests: 17102, failures: 88, why: "it ended with exit status 1 after 4 min: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.50 GiB. GPU 1 has a total capacity of 22.5 GiB of which 611 MiB is free." },
      { engine: hostile, kind: hostile, model: hostile, name: hostile, url: hostile, state: "stopped", since: new Date(began).toISOString(), starts: 1, in_flight: 0, requests: 0, failures: 0, why: hostile },
    ] }),
    "/v1/pending": () => {
      const live = traces.get(JSON.stringify(["flux-ocr-grpo", "train", 24]));
      const samples = empty() ? [] : [
        ...live.without.map((m) => ({ id: m.id, run: "flux-ocr-grpo", step: 24, stage: m.stage, attempt: m.worker ? 2 : 1, workers: m.worker ? [m.worker] : undefined, group: m.uid, waits: m.worker ? undefined : "all 16 places of ocr_mix are in use or wait for the engine judge", bytes: 786944, age_ms: m.age_ms + elapsed() * 1000, deadline: new Date(began + 60_000).toISOString(), last_error: m.worker ? judgeError : undefined })),
        { id: hostile, run: hostileRun, step: 3, stage: hostile, attempt: 1, workers: [hostile], waits: hostile, bytes: 1, age_ms: 900, deadline: new Date().toISOString(), last_error: hostile },
      ];
      return { total: samples.length, held_bytes: 103 << 20, granted_bytes: 61 << 20, samples, rewards: empty() ? [] : [{ reward: "ocr_mix", state: "slow", why: "no result for 20s: calls at judge, no answer for 20s", since: new Date(began - 20_000).toISOString(), waiting: 1, running: 1 }] };
    },
    "/v1/runs": () => ({ runs: [] }),
    "/v1/results": (q) => select(q),
    "/v1/history": (q) => ({ steps: off() || empty() ? [] : stats.filter((s) => s.spec.run === q.get("run") && s.split === (q.get("split") ?? "train")).map(historyOf) }),
    "/v1/history/runs": () => ({ runs: off() || empty() ? [] : specs.map((s) => {
      const mine = rows.filter((r) => r.run === s.run), last = stats.filter((t) => t.spec === s && t.split === "train").at(-1);
      return { run: s.run, first: mine[0].arrived, last: mine.at(-1).finished, samples: mine.length, failed: mine.filter((r) => r.outcome !== "scored").length, steps: s.steps, splits: s.seed === 1 ? ["train", "val"] : ["train"], rewards: [s.reward], mean: historyOf(last).mean };
    }).sort((a, b) => b.last.localeCompare(a.last)) }),
    "/v1/hints": (q) => ({ hints: empty() || off() ? [] : [
      { kind: "size", component: "ocr", with: "picture size", r: 0.71, n: 2000, text: "run flux-ocr-grpo: ocr rises with the share of the picture that the text covers (r = 0.71)", link: "#/samples?run=flux-ocr-grpo&sort=best", _run: "flux-ocr-grpo" },
      { kind: "disagreement", component: "judge", with: "ocr", r: -0.34, n: 1536, text: "run flux-ocr-grpo: judge and ocr rank the same pictures differently", link: "#/run/flux-ocr-grpo/step/24?show=disagreeing", _run: "flux-ocr-grpo" },
      { kind: "saturated", component: "verify", r: null, n: 672, text: "run qwen-text-verify: 81 % of the values of verify are 1", link: "#/run/qwen-text-verify/step/14", _run: "qwen-text-verify" },
      { kind: "length", component: hostile, with: hostile, r: 0.9, n: 8, text: hostile, link: "javascript:window.hacked=1", _run: hostileRun },
    ].filter((h) => !q.get("run") || h._run === q.get("run")).map(({ _run, ...h }) => h) }),
  };

  const server = createServer((req, res) => {
    const url = new URL(req.url, "http://mock");
    const path = url.pathname, q = url.searchParams;
    const send = (status, type, body, more = {}) => {
      res.writeHead(status, { "Content-Type": type, "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", ...more });
      res.end(body);
    };
    const json = (body) => send(200, "application/json", JSON.stringify(body));
    const refuse = (status, code, error) => send(status, "application/json", JSON.stringify({ code, error, failed: null }));
    if (path === "/_mock") {
      for (const [k, v] of q) control[k] = v;
      if (control.events === "off") for (const s of sockets) s.destroy();
      return json(control);
    }
    if (path === "/" && q.has("plain")) return send(200, "text/html", "<!DOCTYPE html><title>plain</title><p>plain tables");
    if (path === "/") return send(200, "text/html; charset=utf-8", readFileSync(join(dist, "index.html")), { "Content-Security-Policy": policy });
    if (path.startsWith("/assets/")) {
      const name = path.slice(8);
      if (!readdirSync(join(dist, "assets")).includes(name)) return refuse(404, "not_found", "nothing at " + path);
      return send(200, extname(name) === ".js" ? "text/javascript" : "text/css", readFileSync(join(dist, "assets", name)));
    }
    if (control.token && req.headers.authorization !== "Bearer " + control.token) return refuse(401, "unauthorized", "the token is missing or wrong");
    if (path === "/v1/events") {
      if (control.events === "off") return refuse(404, "not_found", "nothing at /v1/events");
      res.writeHead(200, { "Content-Type": "text/event-stream", "Cache-Control": "no-store" });
      sockets.add(req.socket);
      const tell = () => res.write(`event: overview\ndata: ${JSON.stringify(overview())}\n\n`);
      res.write(": hello\n\n");
      tell();
      const timer = setInterval(() => {
        tell();
        late++;
        res.write(`event: results\ndata: ${JSON.stringify({ keys: [rows.at(-1).key], run: "flux-ocr-grpo", step: 24 })}\n\n`);
      }, beat);
      req.on("close", () => {
        clearInterval(timer);
        sockets.delete(req.socket);
      });
      return;
    }
    let m = /^\/v1\/results\/(\d+)(\/media\/(\d+))?$/.exec(path);
    if (m) {
      const row = kept().find((r) => String(r.key) === m[1]);
      if (!row) return refuse(404, "not_found", `no result has the key ${m[1]}`);
      if (!m[2]) return json(whole(row, rows));
      if (!row.media.length || row._i === 7) return refuse(404, "not_found", "no picture is kept");
      const video = row.media[0].kind === "video";
      const frame = q.get("frame");
      return send(200, "image/svg+xml", drawing(row, video && frame === null && !q.has("full") ? 8 : 1, Number(frame ?? 0), q.has("full") ? 768 : 256));
    }
    m = /^\/v1\/runs\/([^/]+)\/steps\/(\d+)(\/(trace|groups|histogram))?$/.exec(path);
    if (m) {
      const run = decodeURIComponent(m[1]), step = Number(m[2]), split = q.get("split") ?? "train";
      const known = empty() ? undefined : traces.get(JSON.stringify([run, split, step]));
      const mine = kept().filter((r) => r.run === run && r.step === step && r.split === split);
      if (m[4] === "groups") {
        const list = groupsOf(mine), by = q.get("sort");
        if (by === "zero_std") list.sort((a, b) => Number(b.zero_std) - Number(a.zero_std));
        if (by === "std") list.sort((a, b) => (a.std ?? 0) - (b.std ?? 0));
        return json({ groups: list });
      }
      if (m[4] === "histogram") {
        const columns = {};
        const put = (name, f) => { const v = mine.map(f).filter((x) => x !== null && x !== undefined); if (v.length) columns[name] = histogram(v, mine.length - v.length); };
        put("reward", (r) => r.score);
        for (const p of Object.keys(mine[0]?.components ?? {})) put(p, (r) => r.components[p]);
        return json({ columns });
      }
      // Only live runs are known beside the store.
      if (!known || !specs.find((s) => s.run === run)?.live || step < 20 && run === "flux-ocr-grpo") return refuse(404, "not_found", `step ${step} (${split}) of run ${JSON.stringify(run)} is not known here`);
      if (m[4] === "trace") return json(known.trace);
      const n = known.trace.spans.length;
      return json({ run, split, step, state: known.without.length ? "open" : "complete", expected: n, arrived: n, in_flight: known.without.length, missing: 0, outcomes: { scored: mine.length }, arrival_ms: known.came * 1000, exposed_ms: known.without.length ? 0 : (known.end - known.came) * 1000, without: known.without.map((w) => ({ ...w, age_ms: w.age_ms + elapsed() * 1000 })), groups_ready: 0, chunks: 0, rows_bytes: 0, on_deadline: "keep" });
    }
    if (api[path]) return json(api[path](q));
    refuse(404, "not_found", "nothing at " + path);
  });
  await new Promise((go) => server.listen(port, "127.0.0.1", go));
  return {
    url: `http://127.0.0.1:${server.address().port}/`, rows, control,
    close: () => new Promise((go) => {
      server.closeAllConnections();
      server.close(go);
    }),
  };
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const m = await mock({ port: Number(process.argv[2] ?? 8090) });
  console.log(m.url);
}
