// The samples of a step over time: a track for each worker, with each sample's wait, decoding and
// scoring, and what failed in red.
import { useMemo, useState } from "preact/hooks";
import { has, middle, seconds, short, ticks } from "./format.ts";
import { useWidth } from "./hooks.ts";
import type { Missing, Row, Span, Trace } from "./types.ts";

// Piece is a stretch of a worker's time.
export interface Piece {
  id: string; worker: string; from: number; decoded: number; to: number; // decoded: end of the decoding, from ≤ decoded ≤ to
  arrived: number; failed: boolean; open: boolean; outcome: string; attempt: number; of: number; lane: number;
}
export interface Track { worker: string; lanes: number; pieces: Piece[] }
export interface Picture { tracks: Track[]; arrivals: number[]; last: number; end: number; waiting: { id: string; from: number; to: number; why: string }[] }

// layout puts what was recorded of a step on tracks. `without` are the samples that have no result
// yet; their times follow from their age.
export function layout(spans: Span[], without: Missing[]): Picture {
  const pieces: Piece[] = [];
  const waiting: Picture["waiting"] = [];
  const open = new Map(without.filter((m) => m.id).map((m) => [m.id!, m]));
  let last = 0, end = 0;
  const arrivals: number[] = [];
  for (const s of spans) {
    arrivals.push(s.generated_s);
    last = Math.max(last, s.generated_s);
    end = Math.max(end, s.returned_s ?? 0, s.scored_s ?? 0, s.generated_s);
    const m = open.get(s.id);
    const tries = s.attempts ?? [];
    const won = s.outcome === "scored";
    tries.forEach((a, i) => {
      end = Math.max(end, a.ended_s);
      const counted = a.outcome === "scored";
      pieces.push(piece(s, a.worker ?? "", a.started_s, a.ended_s, !counted && a.outcome !== "late", i + 1, tries.length, a.outcome ?? ""));
    });
    if (tries.length === 0 && has(s.started_s) && has(s.scored_s)) pieces.push(piece(s, s.worker ?? "", s.started_s, s.scored_s, s.outcome !== undefined && !won, 1, 1, s.outcome ?? ""));
    if (m && has(m.age_ms)) {
      const now = s.generated_s + m.age_ms / 1000;
      end = Math.max(end, now);
      const from = Math.max(s.queued_s ?? s.generated_s, ...tries.map((a) => a.ended_s));
      if (m.worker) pieces.push({ ...piece(s, m.worker, from, now, false, tries.length + 1, tries.length + 1, m.stage), open: true });
      else waiting.push({ id: s.id, from, to: now, why: m.stage });
    }
  }
  const by = new Map<string, Piece[]>();
  for (const p of pieces) by.set(p.worker, [...(by.get(p.worker) ?? []), p]);
  const tracks = [...by].sort(([a], [b]) => a.localeCompare(b, undefined, { numeric: true })).map(([worker, list]) => {
    list.sort((a, b) => a.from - b.from || a.to - b.to);
    const free: number[] = [];
    for (const p of list) {
      let lane = free.findIndex((t) => t <= p.from + 1e-9);
      if (lane < 0) lane = free.length;
      free[lane] = p.to;
      p.lane = lane;
    }
    return { worker, lanes: free.length, pieces: list };
  });
  return { tracks, arrivals: arrivals.sort((a, b) => a - b), last, end, waiting };
}

function piece(s: Span, worker: string, from: number, to: number, failed: boolean, attempt: number, of: number, outcome: string): Piece {
  const decode = s.stages_s?.decode ?? 0;
  return { id: s.id, worker, from, decoded: Math.min(to, from + decode), to, arrived: s.generated_s, failed, open: false, outcome, attempt, of, lane: 0 };
}

// spansOf makes spans of stored rows, for a step whose trace is no longer known.
export function spansOf(rows: Row[]): Span[] {
  const times = rows.map((r) => [Date.parse(r.arrived), Date.parse(r.finished)] as const);
  const zero = Math.min(...times.map(([a]) => a).filter((t) => !Number.isNaN(t)));
  if (!Number.isFinite(zero)) return [];
  return rows.flatMap((r, i) => {
    const [a, f] = times[i]!;
    if (Number.isNaN(a) || Number.isNaN(f)) return [];
    const returned = (f - zero) / 1000;
    const took = (r.timing_ms.score ?? 0) / 1000;
    const from = Math.min(returned, (a - zero + (r.timing_ms.queue ?? 0)) / 1000);
    return [{
      id: r.id, uid: r.uid, generated_s: (a - zero) / 1000, started_s: from, scored_s: took > 0 ? Math.min(returned, from + took) : returned, returned_s: returned,
      worker: r.worker, outcome: r.outcome, stages_s: { decode: (r.timing_ms.decode ?? 0) / 1000 },
    }];
  });
}

const left = 104, right = 12, top = 30;

export function Timeline({ trace, without, open, running }: { trace: Pick<Trace, "spans">; without: Missing[]; open: (id: string) => void; running: boolean }) {
  const { ref, width } = useWidth<HTMLDivElement>(900);
  const [at, setAt] = useState<number | null>(null);
  const [all, setAll] = useState(false);
  const drawn = useMemo(() => layout(trace.spans ?? [], without), [trace, without]);
  const most = 24;
  const tracks = all ? drawn.tracks : drawn.tracks.slice(0, most);
  const narrow = width < 560;
  const x0 = narrow ? 8 : left;
  const inner = width - x0 - right;
  const end = drawn.end || 1;
  const px = (t: number) => x0 + (t / end) * inner;
  const lanes = tracks.reduce((n, t) => n + t.lanes, 0);
  const lane = lanes > 60 ? 5 : lanes > 24 ? 8 : 12;
  const gap = narrow ? 18 : 7;
  let y = top;
  const tops = tracks.map((t) => {
    const here = y + (narrow ? 12 : 0);
    y += t.lanes * lane + gap;
    return here;
  });
  const waitTop = y + (narrow ? 12 : 0);
  const waitLanes = Math.min(drawn.waiting.length, 12);
  if (waitLanes) y += waitLanes * 5 + gap;
  const bottom = y;
  const height = bottom + 22;
  const list = useMemo(() => tracks.flatMap((t, k) => t.pieces.map((p) => ({ p, k }))).sort((a, b) => a.p.from - b.p.from), [drawn, all]);
  const box = (p: Piece, k: number) => ({ x: px(p.from), y: tops[k]! + p.lane * lane, w: Math.max(1, px(p.to) - px(p.from)), h: lane - 2 });
  const rect = (x: number, y: number, w: number, h: number) => `M${x.toFixed(1)},${y.toFixed(1)}h${w.toFixed(1)}v${h}h${(-w).toFixed(1)}Z`;
  const paths = { decode: "", score: "", failed: "", open: "" };
  for (const { p, k } of list) {
    const b = box(p, k);
    if (p.open) paths.open += rect(b.x, b.y, b.w, b.h);
    else if (p.failed) paths.failed += rect(b.x, b.y, b.w, b.h);
    else {
      const d = px(p.decoded) - b.x;
      if (d > 0.3) paths.decode += rect(b.x, b.y, d, b.h);
      if (b.w - d > 0.3) paths.score += rect(b.x + d, b.y, Math.max(0.8, b.w - d - 0.6), b.h);
    }
  }
  const chosen = at === null ? undefined : list[Math.min(at, list.length - 1)];
  const find = (event: MouseEvent): number | null => {
    const area = (event.currentTarget as Element).getBoundingClientRect();
    const mx = event.clientX - area.left, my = event.clientY - area.top;
    let best: number | null = null, near = 7;
    list.forEach(({ p, k }, i) => {
      const b = box(p, k);
      const dx = Math.max(b.x - mx, 0, mx - b.x - b.w), dy = Math.max(b.y - my, 0, my - b.y - b.h);
      if (dx + dy < near) [best, near] = [i, dx + dy];
    });
    return best;
  };
  const say = (p: Piece) => {
    const parts = [`${p.worker || "no worker"}`, `waited ${seconds(p.from - p.arrived)}`];
    if (p.decoded > p.from) parts.push(`decoding ${seconds(p.decoded - p.from)}`);
    parts.push(`${p.open ? p.outcome.replaceAll("_", " ") + " for" : p.failed ? (p.outcome || "failed") + " after" : "scoring"} ${seconds(p.to - p.decoded)}`);
    if (p.of > 1) parts.push(`attempt ${p.attempt} of ${p.of}`);
    return parts.join(" · ");
  };
  const exposed = end - drawn.last;
  const key = (event: KeyboardEvent) => {
    const move = { ArrowLeft: -1, ArrowRight: 1, Home: -list.length, End: list.length }[event.key];
    if (move !== undefined && list.length) {
      setAt(Math.max(0, Math.min(list.length - 1, at === null ? (move > 0 ? 0 : list.length - 1) : at + move)));
      event.preventDefault();
      event.stopPropagation();
    } else if (event.key === "Enter" && chosen) open(chosen.p.id);
  };
  return (
    <div class="timeline" ref={ref}>
      <p class="readout" aria-live="off">
        {chosen ? <><code class="id">{middle(chosen.p.id, 40)}</code> {say(chosen.p)}</> : (
          <span class="legend">
            <span><span class="key k-decode" />decoding</span> <span><span class="key k-score" />scoring</span> <span><span class="key k-failed" />failed attempt</span>{" "}
            {running && <span><span class="key k-open" />under way</span>} <span><span class="key k-rug" />arrival</span>
          </span>
        )}
      </p>
      <svg width={width} height={height} viewBox={`0 0 ${width} ${height}`} class="chart can-pick" tabIndex={0} role="slider"
        aria-label="Samples by worker over time: arrow keys move, Enter opens the sample" aria-valuemin={0} aria-valuemax={Math.max(0, list.length - 1)} aria-valuenow={at ?? 0}
        aria-valuetext={chosen ? `${middle(chosen.p.id, 40)}: ${say(chosen.p)}` : `${list.length} attempts, the last sample arrived after ${seconds(drawn.last)}, ${seconds(exposed)} exposed`}
        onPointerMove={(e) => setAt(find(e))} onPointerLeave={() => setAt(null)} onBlur={() => setAt(null)} onKeyDown={key}
        onClick={(e) => {
          const i = find(e);
          if (i !== null) open(list[i]!.p.id);
        }}>
        {exposed > 0 && <rect class="tail" x={px(drawn.last)} y={top - 8} width={Math.max(0, px(end) - px(drawn.last))} height={bottom - top + 8} />}
        {ticks(0, end, Math.max(2, Math.floor(inner / 80))).filter((t) => t <= end).map((t) => (
          <g key={t}>
            <line class="grid" x1={px(t)} x2={px(t)} y1={top - 8} y2={bottom} />
            <text class="tick" x={px(t)} y={height - 6} text-anchor="middle">{short(t)} s</text>
          </g>
        ))}
        <path class="rug" d={drawn.arrivals.map((t) => `M${px(t).toFixed(1)},${top - 8}v-6`).join("")} />
        {tracks.map((t, k) => (
          <text key={t.worker} class="track-name" x={narrow ? x0 : x0 - 8} y={narrow ? tops[k]! - 3 : tops[k]! + (t.lanes * lane) / 2 + 3} text-anchor={narrow ? "start" : "end"}>{middle(t.worker || "no worker", narrow ? 40 : 15)}</text>
        ))}
        <path class="p-decode" d={paths.decode} />
        <path class="p-score" d={paths.score} />
        <path class="p-open" d={paths.open} />
        <path class="p-failed" d={paths.failed} />
        {waitLanes > 0 && <text class="track-name" x={narrow ? x0 : x0 - 8} y={narrow ? waitTop - 3 : waitTop + (waitLanes * 5) / 2 + 3} text-anchor={narrow ? "start" : "end"}>{drawn.waiting.length} waiting</text>}
        {waitLanes > 0 && <path class="p-wait" d={drawn.waiting.slice(0, waitLanes).map((w, i) => rect(px(w.from), waitTop + i * 5, Math.max(1, px(w.to) - px(w.from)), 3)).join("")} />}
        <line class="last" x1={px(drawn.last)} x2={px(drawn.last)} y1={top - 16} y2={bottom} />
        <text class="last-name" x={px(drawn.last) + (px(drawn.last) > width * 0.55 ? -5 : 5)} y={top - 18} text-anchor={px(drawn.last) > width * 0.55 ? "end" : "start"}>
          last sample arrived, {seconds(exposed)} exposed{running ? " so far" : ""}
        </text>
        {chosen && (() => {
          const b = box(chosen.p, chosen.k);
          return <g class="chosen"><rect x={b.x - 1} y={b.y - 1} width={b.w + 2} height={b.h + 2} /><line x1={px(chosen.p.arrived)} x2={b.x} y1={b.y + b.h / 2} y2={b.y + b.h / 2} /></g>;
        })()}
      </svg>
      {drawn.tracks.length > most && <button type="button" class="plain" onClick={() => setAll(!all)}>{all ? "Show fewer workers" : `Show all ${drawn.tracks.length} workers`}</button>}
    </div>
  );
}
