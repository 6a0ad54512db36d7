// Drawings over steps, histograms, and groups as rows of dots. Colours are classes, so that no
// style is written into the page.
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { count, cut, fewTicks, has, score, seconds, share, short, ticks } from "./format.ts";
import { useWidth } from "./hooks.ts";
import { tint } from "./ui.tsx";
import type { Group, Histogram, HistoryStep, Num } from "./types.ts";

export interface Series { name: string; cls: string; y: Num[]; lo?: Num[]; hi?: Num[] }
export interface Panel {
  title: string; kind: "line" | "bar"; height: number; series: Series[];
  say: (v: Num) => string; zero?: boolean; whole?: boolean;
  // note is said beside the value at the cursor.
  note?: (at: number) => string;
}

function extent(panel: Panel): [number, number] {
  let lo = Infinity, hi = -Infinity;
  for (const s of panel.series) {
    for (const list of [s.y, s.lo, s.hi]) {
      for (const v of list ?? []) {
        if (!has(v)) continue;
        lo = Math.min(lo, v);
        hi = Math.max(hi, v);
      }
    }
  }
  if (lo > hi) return [0, 1];
  if (panel.zero || panel.kind === "bar") lo = Math.min(0, lo);
  if (hi === lo) return panel.zero || panel.kind === "bar" ? [lo, lo + 1] : [lo - (Math.abs(lo) * 0.1 || 0.5), hi + (Math.abs(hi) * 0.1 || 0.5)];
  const room = (hi - lo) * 0.06;
  return [lo === 0 ? 0 : lo - room, hi + room];
}

const left = 44, right = 10, head = 18;

// Panels are drawings above each other that share the axis of steps and one cursor.
// At rest they say the values of the last step, or, with `ends`, each series' own last one.
export function Panels({ x, panels, label, pick, ends }: {
  x: number[]; panels: Panel[]; label: string; pick?: (at: number) => void; ends?: boolean;
}) {
  const { ref, width } = useWidth<HTMLDivElement>();
  const [cursor, setCursor] = useState<number | null>(null);
  const n = x.length;
  const at = cursor === null ? n - 1 : Math.min(cursor, n - 1);
  const lo = x[0] ?? 0, hi = x[n - 1] ?? 1;
  const inner = width - left - right;
  const slot = inner / Math.max(1, n);
  const px = (i: number) => left + (hi > lo ? slot / 2 + ((x[i]! - lo) / (hi - lo)) * (inner - slot) : inner / 2);
  const tops: number[] = [];
  let bottom = 0;
  for (const p of panels) {
    tops.push(bottom + head);
    bottom += head + p.height + 8;
  }
  const height = bottom + 20;
  const nearest = (event: PointerEvent) => {
    const box = (event.currentTarget as Element).getBoundingClientRect();
    const want = event.clientX - box.left;
    let best = 0;
    for (let i = 1; i < n; i++) if (Math.abs(px(i) - want) < Math.abs(px(best) - want)) best = i;
    return best;
  };
  const key = (event: KeyboardEvent) => {
    const move = { ArrowLeft: -1, ArrowRight: 1, PageUp: 10, PageDown: -10, Home: -n, End: n }[event.key];
    if (move !== undefined) {
      setCursor(Math.max(0, Math.min(n - 1, at + move)));
      event.preventDefault();
      event.stopPropagation();
    } else if (event.key === "Enter" && pick) pick(at);
  };
  const name = `step ${x[at]}`;
  const value = (s: Series) => (ends && cursor === null ? s.y.findLast(has) : s.y[at]);
  const said = panels.map((p) => `${p.title}: ${p.series.map((s) => (p.series.length > 1 ? s.name + " " : "") + p.say(s.y[at])).join(", ")}`).join("; ");
  const shownTicks = ticks(lo, hi, Math.max(2, Math.floor(inner / 70))).filter((t) => Number.isInteger(t) && t >= lo && t <= hi);
  if (n === 0) return null;
  return (
    <div class="panels" ref={ref}>
      <svg width={width} height={height} viewBox={`0 0 ${width} ${height}`} class={"chart" + (pick ? " can-pick" : "")} tabIndex={0} role="slider"
        aria-label={label} aria-valuemin={lo} aria-valuemax={hi} aria-valuenow={x[at]} aria-valuetext={`${name}: ${said}`}
        onPointerMove={(e) => setCursor(nearest(e))} onPointerLeave={() => setCursor(null)} onBlur={() => setCursor(null)}
        onKeyDown={key} onClick={(e) => pick?.(nearest(e as unknown as PointerEvent))}>
        {panels.map((p, k) => {
          const [y0, y1] = extent(p);
          const top = tops[k]!;
          const py = (v: number) => top + p.height - ((v - y0) / (y1 - y0)) * p.height;
          const marks = fewTicks(y0, y1, p.height > 70 ? 3 : 2, p.whole).filter((_, i, all) => all.length * 15 <= p.height || i === 0 || i === all.length - 1);
          const values = p.series.map((s) => p.say(value(s))), note = p.note?.(at) ?? "";
          const room = Math.max(8, Math.floor(width / 6.6) - values.join("  ").length - note.length - 3);
          return (
            <g key={p.title}>
              <text class="panel-title" x={2} y={top - 6}>{cut(p.title, room)}</text>
              <text class="panel-value" x={width - right} y={top - 6} text-anchor="end">
                {p.series.map((s, i) => (
                  <tspan key={s.name} class={p.series.length > 1 ? s.cls + " tinted" : ""}>
                    {i > 0 ? "\u2002" : ""}{values[i]}
                  </tspan>
                ))}
                {note && <tspan class="soft">{" " + note}</tspan>}
              </text>
              {marks.map((t) => (
                <g key={t}>
                  <line class="grid" x1={left} x2={width - right} y1={py(t)} y2={py(t)} />
                  <text class="tick" x={left - 6} y={py(t) + 3.5} text-anchor="end">{short(t)}</text>
                </g>
              ))}
              {p.series.map((s) => p.kind === "bar"
                ? <g key={s.name} class={s.cls}>{s.y.map((v, i) => has(v) && v !== 0 && (
                  <rect key={i} class="column" x={px(i) - Math.min(10, Math.max(1, slot * 0.36))} width={Math.min(20, Math.max(2, slot * 0.72))}
                    y={py(Math.max(v, 0))} height={Math.max(1, Math.abs(py(v) - py(0)))} />
                ))}</g>
                : <Line key={s.name} s={s} px={px} py={py} dots={n <= 60} />)}
            </g>
          );
        })}
        {shownTicks.map((t) => {
          const at = x.indexOf(t);
          const tx = at >= 0 ? px(at) : left + slot / 2 + (hi > lo ? (t - lo) / (hi - lo) : 0.5) * (inner - slot);
          return <text key={t} class="tick" x={tx} y={height - 4} text-anchor="middle">{t}</text>;
        })}
        <g class={"cursor" + (cursor === null ? " resting" : "")}>
          <line x1={px(at)} x2={px(at)} y1={4} y2={bottom} />
        </g>
        <text class={"cursor-name" + (cursor === null ? " resting" : "")} x={px(at)} y={height - 4} text-anchor={px(at) > width - 60 ? "end" : px(at) < 60 ? "start" : "middle"}>{name}</text>
      </svg>
    </div>
  );
}

function Line({ s, px, py, dots }: { s: Series; px: (i: number) => number; py: (v: number) => number; dots: boolean }) {
  let line = "", pen = false;
  const bands: string[] = [];
  let above: string[] = [], below: string[] = [];
  const close = () => {
    if (above.length > 1) bands.push("M" + above.join("L") + "L" + below.reverse().join("L") + "Z");
    above = [];
    below = [];
  };
  s.y.forEach((v, i) => {
    if (has(v)) {
      line += `${pen ? "L" : "M"}${px(i).toFixed(1)},${py(v).toFixed(1)}`;
      pen = true;
    } else pen = false;
    const lo = s.lo?.[i], hi = s.hi?.[i];
    if (has(lo) && has(hi)) {
      above.push(`${px(i).toFixed(1)},${py(hi).toFixed(1)}`);
      below.push(`${px(i).toFixed(1)},${py(lo).toFixed(1)}`);
    } else close();
  });
  close();
  return (
    <g class={s.cls}>
      {bands.map((b, i) => <path key={i} class="band" d={b} />)}
      <path class="line" d={line} />
      {dots && s.y.map((v, i) => has(v) && <circle key={i} class="dot" cx={px(i)} cy={py(v)} r={2} />)}
    </g>
  );
}

// columnsOf are the components of a history, by name.
export function columnsOf(steps: HistoryStep[]): string[] {
  const names = new Set<string>();
  for (const s of steps) for (const k of Object.keys(s.components)) names.add(k);
  return [...names].sort();
}

// HistoryChart is a run over its steps.
export function HistoryChart({ steps, run, pick, small }: { steps: HistoryStep[]; run: string; pick: (step: HistoryStep) => void; small?: boolean }) {
  const names = columnsOf(steps);
  const off = (a: Num, b: Num, sign: number) => (has(a) && has(b) ? a + sign * b : null);
  const panels: Panel[] = [{
    title: "reward, mean ± std", kind: "line", height: small ? 84 : 130, say: score,
    series: [{ name: "reward", cls: "c0", y: steps.map((s) => s.mean), lo: steps.map((s) => off(s.mean, s.std, -1)), hi: steps.map((s) => off(s.mean, s.std, 1)) }],
    note: (i) => "± " + score(steps[i]?.std),
  }];
  // One component alone is the reward.
  for (const name of names.length > 1 ? names : []) {
    const of = (i: number) => steps[i]?.components[name];
    panels.push({
      title: `${name}, mean ± std`, kind: "line", height: small ? 38 : 56, say: score,
      series: [{
        name, cls: tint(names, name), y: steps.map((s) => s.components[name]?.mean),
        lo: steps.map((s) => off(s.components[name]?.mean, s.components[name]?.std, -1)), hi: steps.map((s) => off(s.components[name]?.mean, s.components[name]?.std, 1)),
      }],
      note: (i) => (has(of(i)?.std) ? "± " + score(of(i)?.std) : ""),
    });
  }
  panels.push({
    title: "exposed seconds", kind: "bar", height: small ? 34 : 46, say: seconds, series: [{ name: "exposed", cls: "wait", y: steps.map((s) => s.exposed_s) }],
    note: (i) => {
      const s = steps[i];
      return s && has(s.exposed_s) && has(s.makespan_s) && s.makespan_s > 0 ? `of ${seconds(s.makespan_s)}` : "";
    },
  });
  panels.push({
    title: "failed samples", kind: "bar", height: small ? 26 : 34, say: count, whole: true, series: [{ name: "failed", cls: "bad", y: steps.map((s) => s.failed) }],
    note: (i) => (steps[i] && steps[i]!.samples > 0 ? `of ${count(steps[i]!.samples)}` : ""),
  });
  return (
    <Panels x={steps.map((s) => s.step)} panels={panels} label={`Steps of run ${run}: arrow keys move, Enter opens the step`}
      pick={(i) => steps[i] && pick(steps[i]!)} />
  );
}

export function HistogramChart({ name, of, cls }: { name: string; of: Histogram; cls: string }) {
  const [at, setAt] = useState<number | null>(null);
  const most = Math.max(1, ...of.counts);
  const bins = of.counts.length || 1;
  const edge = (i: number) => of.lo + ((of.hi - of.lo) * i) / bins;
  const say = at !== null && of.counts[at] !== undefined ? `${score(edge(at))} to ${score(edge(at + 1))}: ${count(of.counts[at])}` : `${count(of.n)} values${of.failed ? `, ${count(of.failed)} failed` : ""}`;
  const where = (event: PointerEvent) => {
    const box = (event.currentTarget as Element).getBoundingClientRect();
    return Math.max(0, Math.min(bins - 1, Math.floor(((event.clientX - box.left) / box.width) * bins)));
  };
  return (
    <figure class={"histogram " + cls}>
      <figcaption><b title={name}>{name}</b><span class={at === null && of.failed ? "bad" : ""}>{say}</span></figcaption>
      <svg viewBox={`0 0 ${bins * 8} 64`} preserveAspectRatio="none" tabIndex={0} role="slider" aria-label={`Distribution of ${name}`}
        aria-valuemin={0} aria-valuemax={bins - 1} aria-valuenow={at ?? 0} aria-valuetext={say}
        onPointerMove={(e) => setAt(where(e))} onPointerLeave={() => setAt(null)} onBlur={() => setAt(null)}
        onKeyDown={(e) => {
          const move = { ArrowLeft: -1, ArrowRight: 1 }[e.key];
          if (move === undefined) return;
          setAt(Math.max(0, Math.min(bins - 1, at === null ? (move > 0 ? 0 : bins - 1) : at + move)));
          e.preventDefault();
          e.stopPropagation();
        }}>
        {of.counts.map((c, i) => {
          const h = c === 0 ? 0 : Math.max(1.5, (c / most) * 60);
          return <rect key={i} class={"column" + (i === at ? " on" : "")} x={i * 8 + 0.5} width={7} y={63 - h} height={h} />;
        })}
        <line class="axis" x1={0} x2={bins * 8} y1={63.5} y2={63.5} />
      </svg>
      <div class="ends"><span>{score(of.lo)}</span><span>{score(of.hi)}</span></div>
    </figure>
  );
}

// Dots are groups as rows: a dot for each member at its reward, a cross for one without.
export function Dots({ groups, lo, hi, href, row }: { groups: Group[]; lo: number; hi: number; href: (g: Group) => string; row?: (g: Group) => ComponentChildren }) {
  const { ref, width } = useWidth<SVGSVGElement>(400);
  const wide = width, mid = 9;
  const span = hi > lo ? hi - lo : 1;
  const px = (v: number) => 26 + ((v - lo) / span) * (wide - 34);
  return (
    <ol class="dots">
      {groups.map((g, row0) => {
        const failed = g.members.filter((m) => !has(m.score));
        return (
          <li key={g.uid}>
            <a class="dots-name" href={href(g)} data-nav title={g.prompt || g.uid}>{g.prompt || g.uid}</a>
            <svg class="dots-line" ref={row0 === 0 ? ref : undefined} viewBox={`0 0 ${wide} 18`} role="img" aria-label={`${g.members.length - failed.length} rewards, mean ${score(g.mean)}, std ${score(g.std)}, ${failed.length} without a reward`}>
              <line class="axis" x1={26} x2={wide - 8} y1={mid} y2={mid} />
              {has(g.mean) && <line class="mean" x1={px(g.mean)} x2={px(g.mean)} y1={2} y2={16} />}
              {g.members.map((m) => has(m.score) && <circle key={m.key} class={"dot" + (g.zero_std ? " flat" : "")} cx={px(m.score)} cy={mid} r={3.5} />)}
              {failed.slice(0, 4).map((m, i) => <path key={m.key} class="cross" d={`M${2 + i * 5.5},6.5l4,5m0,-5l-4,5`} />)}
            </svg>
            <span class="dots-value">{score(g.mean)} <span class="soft">± {score(g.std)}</span></span>
            <span class="dots-note">
              {g.zero_std && <span class="tag wait">zero std</span>}
              {failed.length > 0 && <span class="tag bad">{failed.length} failed</span>}
              {g.members.length < g.size && <span class="tag">{g.size - g.members.length} missing</span>}
              {row?.(g)}
            </span>
          </li>
        );
      })}
    </ol>
  );
}

// Meter is a share as a bar.
export function Meter({ value, of, label }: { value: number; of: number; label: string }) {
  const part = of > 0 ? Math.max(0, Math.min(1, value / of)) : 0;
  return (
    <svg class="meter" viewBox="0 0 100 6" preserveAspectRatio="none" role="img" aria-label={`${label}: ${share(part)}`}>
      <rect class="track" width="100" height="6" />
      <rect class="fill" width={part * 100} height="6" />
    </svg>
  );
}
