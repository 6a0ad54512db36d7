import { useEffect, useMemo, useState } from "preact/hooks";
import type { ComponentChildren } from "preact";
import { picture } from "../api.ts";
import { ago, clock, count, has, middle, ms, plural, score, share } from "../format.ts";
import { useGet } from "../hooks.ts";
import { groupLink, queryOf, runLink, sampleLink, stepLink } from "../route.ts";
import type { Fault, Media, Results, Whole } from "../types.ts";
import { altOf, Bars, Empty, Fact, frameOf, Id, Long, namesOf, Outcome, Picture, rangeOf, recalled, Section, Shown, usePageTitle } from "../ui.tsx";
import { lookUp } from "./step.tsx";

type Json = Record<string, unknown>;
const record = (v: unknown): Json | null => (typeof v === "object" && v !== null && !Array.isArray(v) ? (v as Json) : null);
const list = (v: unknown): unknown[] => (Array.isArray(v) ? v : []);
const text = (v: unknown): string => (typeof v === "string" ? v : "");

// Read is a line of text that a reader found on a frame.
export interface Read { text: string; confidence: number | null; box: [number, number, number, number] | null }

function readLines(v: unknown): Read[] {
  return list(v).flatMap((l) => {
    const line = record(l);
    if (!line) return [];
    const box = list(line.box);
    const whole = box.length === 4 && box.every((n) => typeof n === "number" && Number.isFinite(n));
    return [{ text: text(line.text), confidence: typeof line.confidence === "number" ? line.confidence : null, box: whole ? (box as [number, number, number, number]) : null }];
  });
}

// Said is what a component's scorer said beside its value.
export interface Said {
  component: string; lines: Map<number, Read[]>; texts: Map<number, string>; targets: string[]; reader: string;
  question: string; system: string; answers: Json[]; rest: Json;
}

// saidOf reads the details: by component, or those of the one component alone.
export function saidOf(details: Record<string, unknown>, components: string[]): Said[] {
  const keys = Object.keys(details);
  if (keys.length === 0) return [];
  const byName = keys.every((k) => components.includes(k) && record(details[k]));
  const parts: [string, Json][] = byName ? keys.map((k) => [k, record(details[k])!]) : [[components.length === 1 ? components[0]! : "", details]];
  return parts.map(([component, d]) => {
    const { lines, text: all, frames, target, targets, reader, question, system, answers, asked: _asked, frames_read: _read, ...rest } = d;
    const said: Said = {
      component, lines: new Map(), texts: new Map(), reader: text(reader), question: text(question), system: text(system),
      targets: text(target) ? [text(target)] : list(targets).map(text).filter(Boolean),
      answers: list(answers).flatMap((a) => (record(a) ? [record(a)!] : [])), rest,
    };
    if (Array.isArray(lines) || typeof all === "string") {
      said.lines.set(0, readLines(lines));
      said.texts.set(0, text(all));
    }
    const kept: unknown[] = [];
    for (const f of list(frames)) {
      const frame = record(f);
      const n = frame?.frame;
      if (frame && typeof n === "number" && Array.isArray(frame.lines)) {
        said.lines.set(n, readLines(frame.lines));
        said.texts.set(n, text(frame.text));
      } else kept.push(f);
    }
    if (kept.length) said.rest.frames = kept;
    return said;
  });
}

export function SampleView({ id }: { id: string }) {
  const row = useGet<Whole>(`/v1/results/${encodeURIComponent(id)}`);
  usePageTitle(row.data ? `Sample ${row.data.id}` : "Sample");
  return <>{row.data === null && <h1>Sample</h1>}<Shown of={row} what="The sample">{(w) => <Sample key={String(w.key)} row={w} />}</Shown></>;
}

function Sample({ row }: { row: Whole }) {
  const group = useGet<Results>(row.uid ? `/v1/results${queryOf({ run: row.run, step: row.step, split: row.split, epoch: row.epoch, uid: row.uid, sort: "best", limit: 256 })}` : null);
  const said = useMemo(() => saidOf(row.details ?? {}, Object.keys(row.components)), [row]);
  const names = namesOf([row]);
  const members = group.data?.results ?? [];
  const range = rangeOf(members.length ? members : [row]);
  const [boxes, setBoxes] = useState(true);
  const from = recalled().map(String).includes(String(row.key)) ? recalled() : members.map((m) => m.key);
  const at = from.map(String).indexOf(String(row.key));
  const errors = row.errors.length ? row.errors : row.error ? [row.error] : [];
  const anyBoxes = said.some((s) => [...s.lines.values()].some((l) => l.some((r) => r.box)));
  return (
    <>
      <p class="crumbs">
        <a href="#/">Overview</a> <a href={runLink(row.run, row.split)}>Run <Id text={row.run} /></a>{" "}
        <a href={stepLink(row.run, row.step, row.split, undefined)} data-up={row.uid ? undefined : true}>Step {row.step}</a>
        {row.uid && <> <a href={groupLink(row.run, row.step, row.uid, row.split)} data-up>Group <Id text={row.uid} most={24} /></a></>}
      </p>
      <div class="title-row">
        <h1>Sample <Id text={row.id} most={52} /></h1>
        <nav class="turns" aria-label="Samples">
          {at > 0 && <a href={sampleLink(from[at - 1]!)} data-turn="previous">← previous</a>}
          {at >= 0 && at < from.length - 1 && <a href={sampleLink(from[at + 1]!)} data-turn="next">next →</a>}
          {at >= 0 && <span class="soft">{at + 1} of {from.length}</span>}
        </nav>
      </div>
      <div class="sample">
        <div class="sample-media">
          {row.media.length === 0 && row.response === "" && <Empty>The sample has no picture.</Empty>}
          {row.media.map((m) => <Shot key={m.n} media={m} row={row} said={said} boxes={boxes} />)}
          {anyBoxes && <label class="check"><input type="checkbox" checked={boxes} onChange={(e) => setBoxes(e.currentTarget.checked)} /> show what was read</label>}
          {row.response !== "" && <><h2>Answer</h2><Long cls="whole-text" text={row.response} /></>}
        </div>
        <div class="sample-facts">
          <div class="verdict">
            {has(row.score) ? <b class="big">{score(row.score)}</b> : <b class={"big" + (row.outcome === "scored" ? "" : " bad")}>{row.outcome}</b>}
            {has(row.score) && <Outcome of={row.outcome} />}
            {row.fallback && <span class="soft">by fallback {row.fallback.policy}{has(row.fallback.value) ? `: ${score(row.fallback.value)}` : ""}</span>}
            {row.group && has(row.group.mean) && <span class="soft">group {score(row.group.mean)} ± {score(row.group.std)}</span>}
          </div>
          {errors.length > 0 && <Errors of={errors} />}
          <Bars row={row} names={names} range={range} failed={errors[0]?.component} />
          {row.prompt && <><h2>Prompt</h2><Long cls="whole-text" text={row.prompt} /></>}
          {said.map((s, i) => <SaidOf key={i} said={s} />)}
          <h2>Times</h2>
          <Times of={row.timing_ms} />
          <dl class="facts">
            <Fact name="worker" wide><Id text={row.worker || "none"} most={48} /></Fact>
            <Fact name="attempts" tone={row.attempts > 1 ? "wait" : ""}>{count(row.attempts)}</Fact>
            <Fact name="arrived">{clock(row.arrived)}</Fact>
            <Fact name="answered">{clock(row.finished)} <span class="soft">{ago(row.finished)}</span></Fact>
            <Fact name="reward">{row.reward || "default"}</Fact>
            {has(row.index) && <Fact name="index">{row.index}</Fact>}
            {row.data_source && <Fact name="data source">{row.data_source}</Fact>}
            {row.config && <Fact name="configuration" wide><Id text={row.config} most={24} /></Fact>}
            {row.epoch && <Fact name="epoch" wide><Id text={row.epoch} most={24} /></Fact>}
          </dl>
          {row.step_scores && row.step_scores.length > 0 && <Steps of={row.step_scores} />}
          <Raw name="Ground truth" of={row.ground_truth} open />
          <Raw name="Extra of the reward" of={row.extra} />
          <Raw name="Extra of the sample" of={row.extra_info} />
          <Raw name="Code" of={row.code} />
        </div>
      </div>
      {members.length > 1 && (
        <Section title="Samples of the group" aside={<a href={groupLink(row.run, row.step, row.uid, row.split)}>{plural(members.length, "sample")}</a>}>
          <ul class="strip-of">
            {members.slice(0, 32).map((m) => {
              const media = m.media[0];
              return (
                <li key={m.key} class={String(m.key) === String(row.key) ? "here" : ""}>
                  <a href={sampleLink(m.key)} data-nav aria-current={String(m.key) === String(row.key) ? "true" : undefined}>
                    <span class="unseen">{altOf(m)}</span>
                    {media && media.kind !== "audio" ? <Picture path={frameOf(media, 0)} alt="" width={1} height={1} /> : <span class="thumb answer"><span>{m.response || m.id}</span></span>}
                    <span class={has(m.score) ? "" : "bad"}>{has(m.score) ? score(m.score) : m.outcome}</span>
                  </a>
                </li>
              );
            })}
          </ul>
        </Section>
      )}
    </>
  );
}

function Errors({ of }: { of: Fault[] }) {
  return (
    <ul class="errors" aria-label="Errors">
      {of.map((e, i) => (
        <li key={i}>
          <p class="error-head"><b>{e.component || "the sample as a whole"}</b> <span class="tag bad">{e.class}</span>{" "}
            <span class="soft">{[e.blame && `blamed on the ${e.blame}`, e.attempts && plural(e.attempts, "attempt"), e.permanent && "every sample would fail like this"].filter(Boolean).join(", ")}</span></p>
          <Long cls="message" text={e.message} />
        </li>
      ))}
    </ul>
  );
}

// Shot is a picture, or a video frame by frame, with what was read on it.
function Shot({ media, row, said, boxes }: { media: Media; row: Whole; said: Said[]; boxes: boolean }) {
  const video = media.kind === "video";
  const [frame, setFrame] = useState(0);
  const [full, setFull] = useState(false);
  const [why, setWhy] = useState("");
  // A video's thumbnail holds up to 8 frames, spread over all of it.
  const shown = video ? Math.min(8, Math.max(1, media.frames)) : 1;
  const nth = (k: number) => (shown < 2 ? 0 : Math.round((k * (media.frames - 1)) / (shown - 1)));
  const read = said.flatMap((s) => {
    const lines = video ? s.lines.get(nth(frame)) ?? nearest(s.lines, nth(frame), media.frames / shown / 2) : media.n === 0 ? s.lines.get(0) : undefined;
    return lines ? [{ component: s.component, lines }] : [];
  });
  useEffect(() => setFull(false), [media.thumbnail]);
  if (media.kind === "audio") return <p class="note">Audio {media.n + 1} <Save media={media} row={row} /></p>;
  const path = full && !video ? media.full : frameOf(media, frame);
  const w = media.width || 1, h = media.height || 1;
  return (
    <figure class="shot">
      <Picture path={path} alt={altOf(row)} width={w} height={h}>
        {boxes && read.length > 0 && (
          <svg class="boxes" viewBox={`0 0 ${w} ${h}`} preserveAspectRatio="none" aria-hidden="true">
            {read.flatMap((r) => r.lines.map((l, i) => l.box && (
              <g key={r.component + i}>
                <rect x={l.box[0]} y={l.box[1]} width={Math.max(1, l.box[2] - l.box[0])} height={Math.max(1, l.box[3] - l.box[1])} class={l.confidence === 0 ? "uncounted" : ""}>
                  <title>{l.text}</title>
                </rect>
              </g>
            )))}
          </svg>
        )}
        {boxes && read.flatMap((r) => r.lines.map((l, i) => l.box && (
          <span key={r.component + i} class={"box-text" + (l.box[1] / h < 0.06 ? " inside" : "")} style={{ left: `${(l.box[0] / w) * 100}%`, top: `${(Math.max(0, l.box[1]) / h) * 100}%`, maxWidth: `${100 - (l.box[0] / w) * 100}%` }} aria-hidden="true">{middle(l.text, 40)}</span>
        )))}
      </Picture>
      {shown > 1 && (
        <div class="frames">
          <ol>{Array.from({ length: shown }, (_, k) => (
            <li key={k}><button type="button" class="frame" aria-pressed={k === frame} aria-label={`Frame ${nth(k) + 1}`} onClick={() => setFrame(k)}><Picture path={frameOf(media, k)} alt="" width={w} height={h} /></button></li>
          ))}</ol>
        </div>
      )}
      <figcaption>
        {video ? `frame ${nth(frame) + 1} of ${count(media.frames)}, ` : ""}{has(media.width) && has(media.height) ? `${media.width} × ${media.height}` : ""}{" "}
        {media.full && !video && <button type="button" class="plain" aria-pressed={full} onClick={() => setFull(!full)}>{full ? "small" : "original"}</button>}{" "}
        <Save media={media} row={row} fail={setWhy} />
        {why && <span class="bad"> {why}</span>}
      </figcaption>
    </figure>
  );
}

function nearest(lines: Map<number, Read[]>, frame: number, within: number): Read[] | undefined {
  let best: number | undefined;
  for (const n of lines.keys()) if (Math.abs(n - frame) <= within && (best === undefined || Math.abs(n - frame) < Math.abs(best - frame))) best = n;
  return best === undefined ? undefined : lines.get(best);
}

// Save hands the original bytes to the browser: a link could not carry the token.
function Save({ media, row, fail }: { media: Media; row: Whole; fail?: (why: string) => void }) {
  if (!media.full) return null;
  const save = async () => {
    try {
      const link = document.createElement("a");
      link.href = await picture(media.full!);
      link.download = `sample-${row.key}-${media.n}`;
      link.click();
    } catch {
      fail?.("the original cannot be loaded");
    }
  };
  return <button type="button" class="plain" onClick={() => void save()}>save the original</button>;
}

function SaidOf({ said }: { said: Said }) {
  const lines = [...said.lines].flatMap(([frame, ls]) => ls.map((l) => ({ frame, ...l })));
  const what: ComponentChildren[] = [];
  const texts = new Map<string, number>();
  for (const t of said.texts.values()) if (t) texts.set(t, (texts.get(t) ?? 0) + 1);
  if (said.lines.size || said.targets.length) {
    what.push(
      <div class="read" key="read">
        {said.targets.length > 0 && <p><span class="soft">asked for </span>{said.targets.map((t, i) => <q key={i}>{t}</q>)}</p>}
        <p><span class="soft">{said.reader ? `${said.reader} read ` : "read "}</span>{texts.size ? [...texts].slice(0, 8).map(([t, n]) => <span key={t}><q>{t}</q>{said.texts.size > 1 && <span class="soft">in {plural(n, "frame")} </span>}</span>) : <span class="soft">nothing</span>}</p>
        {lines.some((l) => l.confidence !== null) && (
          <details><summary>{plural(lines.length, "line")}</summary>
            <ul class="lines">{lines.slice(0, 200).map((l, i) => <li key={i}><span>{said.lines.size > 1 ? `frame ${l.frame + 1}: ` : ""}{l.text || "(empty)"}</span><span class="soft">{share(l.confidence)}</span></li>)}</ul>
          </details>
        )}
      </div>,
    );
  }
  if (said.question || said.answers.length) {
    what.push(
      <dl class="judge" key="judge">
        {said.system && <><dt>told</dt><dd>{said.system}</dd></>}
        {said.question && <><dt>asked</dt><dd>{said.question}</dd></>}
        {said.answers.map((a, i) => (
          <div key={i}>
            <dt>{text(a.label) || "answered"}</dt>
            <dd>
              <Long cls="whole-text" text={text(a.text)} />
              {text(a.reasoning) && <details><summary>reasoning</summary><Long cls="whole-text" text={text(a.reasoning)} /></details>}
              <p class="soft">value {score(typeof a.value === "number" ? a.value : null)}{typeof a.tries === "number" && a.tries > 1 ? `, after ${plural(a.tries, "question")}` : ""}{a.cached === true ? ", known already" : ""}{list(a.frames).length ? `, shown ${plural(list(a.frames).length, "frame")}` : ""}</p>
            </dd>
          </div>
        ))}
      </dl>,
    );
  }
  if (Object.keys(said.rest).length) what.push(<Raw key="rest" name={`${what.length ? "Other details" : "Details"} of ${said.component || "the scorer"}`} of={said.rest} />);
  return <><h2 title={said.component}>{said.component || "Details"}</h2>{what}</>;
}

// Times are the stages of a sample: what waits, then what the worker did, components side by side.
function Times({ of }: { of: Record<string, number> }) {
  const queue = of.queue ?? 0;
  const total = Math.max(of.total ?? 0, queue + (of.score ?? 0), ...Object.values(of), 1e-6);
  const stages = Object.entries(of).filter(([k]) => !["total", "queue", "score", "decode"].includes(k)).sort(([a], [b]) => a.localeCompare(b));
  const rows: [string, number, number, string][] = [];
  if (has(of.queue)) rows.push(["queue", 0, of.queue, "t-queue"]);
  if (has(of.decode)) rows.push(["decode", queue, of.decode, "t-decode"]);
  if (has(of.score)) rows.push(["score", queue, of.score, "t-score"]);
  // A model's batch is waited for after decoding, and runs last.
  const began: Record<string, number> = { claim: Math.max(0, queue - (of.claim ?? 0)), batch_wait: queue + (of.decode ?? 0), infer: Math.max(queue, queue + (of.score ?? 0) - (of.infer ?? 0)) };
  for (const [k, v] of stages) rows.push([k.replace(/^component\//, ""), began[k] ?? queue, v, k.startsWith("component/") ? "t-part" : "t-queue"]);
  return (
    <dl class="times">
      {rows.slice(0, 24).map(([name, from, took, cls]) => (
        <div key={name + cls}>
          <dt title={name}>{name}</dt>
          <dd><svg viewBox="0 0 1000 8" preserveAspectRatio="none" aria-hidden="true"><rect class="track" width="1000" height="8" /><rect class={cls} x={Math.min(996, (from / total) * 1000)} width={Math.max(4, Math.min(1000, (took / total) * 1000))} height="8" /></svg><span>{ms(took)}</span></dd>
        </div>
      ))}
      {has(of.total) && <div class="sum"><dt>total</dt><dd><span>{ms(of.total)}</span></dd></div>}
    </dl>
  );
}

function Steps({ of }: { of: (number | null | undefined)[] }) {
  const known = of.filter(has);
  const lo = Math.min(0, ...known), hi = Math.max(1e-9, ...known);
  const py = (v: number) => 38 - ((v - lo) / (hi - lo)) * 34;
  return (
    <><h2>Scores by denoising step or token</h2>
      <svg class="step-scores" viewBox={`0 0 ${Math.max(1, of.length - 1) * 10} 40`} preserveAspectRatio="none" role="img" aria-label={`${of.length} scores from ${score(known[0])} to ${score(known[known.length - 1])}`}>
        <polyline points={of.flatMap((v, i) => (has(v) ? [`${i * 10},${py(v)}`] : [])).join(" ")} />
      </svg></>
  );
}

function Raw({ name, of, open }: { name: string; of: unknown; open?: boolean }) {
  const map = record(of);
  if (of === null || of === undefined || of === "" || (map && Object.keys(map).length === 0)) return null;
  if (typeof of === "string" && open) return <><h2>{name}</h2><Long cls="whole-text" text={of} /></>;
  const shown = JSON.stringify(of, null, 2) ?? "";
  return <details open={open}><summary>{name}</summary><pre tabIndex={0}>{shown.length > 20_000 ? shown.slice(0, 20_000) + "…" : shown}</pre></details>;
}

// Find leads to the sample with an id, as the trainer and the failures name it.
export function Find({ query }: { query: Record<string, string> }) {
  usePageTitle("Sample");
  const { run = "", step = "", split = "train", id = "" } = query;
  const [why, setWhy] = useState("");
  useEffect(() => {
    const stop = new AbortController();
    setWhy("");
    lookUp(run, step, split, id, stop.signal).then(
      (key) => {
        if (stop.signal.aborted) return;
        if (key === null) setWhy("the store does not hold it (any more), or the sample has no result yet");
        else location.replace(sampleLink(key));
      },
      (err: unknown) => {
        if (!stop.signal.aborted) setWhy(err instanceof Error ? err.message : String(err));
      },
    );
    return () => stop.abort();
  }, [run, step, split, id]);
  return (
    <>
      <h1>Sample <Id text={id} most={52} /></h1>
      {why === "" ? <p class="empty" aria-busy="true">Loading…</p> : <Empty>The sample cannot be shown: {why}. <a href={stepLink(run, Number(step) || 0, split)}>Its step</a> and <a href="#/failures">the failures</a> may say more.</Empty>}
    </>
  );
}
