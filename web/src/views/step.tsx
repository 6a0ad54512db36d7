import { useEffect, useMemo, useRef } from "preact/hooks";
import { get, stepPath } from "../api.ts";
import { Dots, HistogramChart, Meter } from "../charts.tsx";
import { count, has, ms, plural, score, seconds, share } from "../format.ts";
import { useGet, useLive, useWritten } from "../hooks.ts";
import { groupLink, parse, queryOf, runLink, safe, sampleLink, stepLink, to } from "../route.ts";
import { spansOf, Timeline } from "../timeline.tsx";
import type { Group, Histogram, HistoryStep, Results, StepState, Trace } from "../types.ts";
import { Empty, Fact, Gallery, Id, Scroll, Section, Shown, StatusLines, Tabs, tint, usePageTitle } from "../ui.tsx";

const shows: [name: string, query: Record<string, string>][] = [
  ["best", { sort: "best" }], ["worst", { sort: "worst" }], ["failed", { failed: "1" }], ["slowest", { sort: "slowest" }], ["disagreeing", { sort: "disagreeing" }],
];

export function StepView({ run, step, query }: { run: string; step: string; query: Record<string, string> }) {
  const split = query.split ?? "train", epoch = query.epoch;
  usePageTitle(`Step ${step} of ${run}`);
  const { overview } = useLive();
  const path = stepPath(run, step), of = queryOf({ split, epoch });
  const state = useGet<StepState>(epoch ? null : `${path}${queryOf({ split })}`, 2_000);
  const live = (state.data?.in_flight ?? 0) > 0 || (state.data?.state === "open" && (state.data.expected ?? 0) > state.data.arrived);
  const trace = useGet<Trace>(epoch ? null : `${path}/trace${queryOf({ split })}`, live ? 2_000 : 20_000);
  const history = useGet<{ steps: HistoryStep[] }>(`/v1/history${queryOf({ run, split })}`, 20_000);
  const groups = useGet<{ groups: Group[] }>(`${path}/groups${queryOf({ split, epoch, sort: query.groups ?? "step", limit: 200 })}`, live ? 5_000 : 0);
  const histogram = useGet<{ columns: Record<string, Histogram> }>(`${path}/histogram${of}`, live ? 5_000 : 0);
  const show = shows.find(([name]) => name === query.show) ?? shows[0]!;
  const rows = useGet<Results>(`/v1/results${queryOf({ run, step, split, epoch, limit: 24, ...show[1] })}`, live ? 5_000 : 0);
  const failed = useGet<Results>(`/v1/results${queryOf({ run, step, split, epoch, failed: 1, limit: 1 })}`, live ? 5_000 : 0);
  // Where the trace is no longer known the rows of the store say when what happened.
  const rest = useGet<Results>(epoch || trace.error ? `/v1/results${queryOf({ run, step, split, epoch, sort: "oldest", limit: 1000 })}` : null);
  useWritten((w) => {
    if (w.run !== run || String(w.step) !== step) return;
    for (const one of [trace, state, groups, histogram, rows, failed, history]) one.reload();
  });
  const without = useMemo(() => state.data?.without ?? [], [state.data]);
  const drawn = useMemo(() => trace.data ?? (rest.data ? { spans: spansOf(rest.data.results) } : null), [trace.data, rest.data]);
  const here = history.data?.steps.findIndex((s) => String(s.step) === step) ?? -1;
  const past = here >= 0 ? history.data!.steps[here]! : null;
  const before = here > 0 ? history.data!.steps[here - 1] : undefined;
  const after = here >= 0 ? history.data!.steps[here + 1] : undefined;
  // A link that names which samples to show leads to them.
  const led = useRef(false);
  useEffect(() => {
    if (led.current || !query.show || !rows.data || histogram.loading || groups.loading || state.loading || trace.loading || rest.loading) return;
    led.current = true;
    document.getElementById("samples")?.scrollIntoView();
  }, [rows.data, histogram.loading, groups.loading, state.loading, trace.loading, rest.loading]);
  const stay = (more: Record<string, string | undefined>) => to(["run", run, "step", step], { ...query, ...more });
  const mine = (overview?.status ?? []).filter((l) => {
    const at = parse(safe(l.link) ?? "").path;
    return l.level !== "ok" && at[0] === "run" && at[1] === run && at[3] === step;
  });
  const open = async (id: string) => {
    const known = groups.data?.groups.flatMap((g) => g.members).find((m) => m.id === id);
    if (known) location.hash = sampleLink(known.key);
    else location.hash = to(["find"], { run, step, split: split === "train" ? undefined : split, id });
  };
  const s = state.data;
  const now = overview?.runs.find((r) => r.run === run && String(r.step) === step && r.split === split);
  const range = histogram.data?.columns.reward;
  return (
    <>
      <p class="crumbs"><a href="#/">Overview</a> <a href={runLink(run, split)} data-up>Run <Id text={run} /></a></p>
      <div class="title-row">
        <h1>Step {step}{split !== "train" && <span class="soft"> {split}</span>}{live && <span class="pill wait">under way</span>}</h1>
        <nav class="turns" aria-label="Steps">
          {before && <a href={stepLink(run, before.step, split)}>← step {before.step}</a>}
          {after && <a href={stepLink(run, after.step, split)}>step {after.step} →</a>}
        </nav>
      </div>
      {epoch && <p class="note">These are rows of an earlier start of the trainer. <a href={stepLink(run, Number(step), split)}>The newest</a></p>}
      {mine.length > 0 && <StatusLines lines={mine.map((l) => ({ ...l, link: "" }))} />}
      <dl class="facts strip">
        <Fact name="reward">{score(past?.mean)} <span class="soft">± {score(past?.std)}</span></Fact>
        <Fact name="arrived">{count(s?.arrived ?? past?.samples)}{s?.expected ? ` of ${count(s.expected)}` : ""}{s?.expected ? <Meter value={s.arrived} of={s.expected} label="Arrived" /> : null}</Fact>
        <Fact name="without a result">{s ? count(s.in_flight) : "0"}</Fact>
        <Fact name="failed" tone={past?.failed ? "bad" : ""} href={past?.failed ? stay({ show: "failed" }) : undefined}>{past ? `${count(past.failed)} of ${count(past.samples)}` : "–"}</Fact>
        <Fact name="exposed">{live && now && !has(past?.exposed_s) ? <>{seconds(now.exposed_s)} <span class="soft">so far</span></> : s && s.in_flight === 0 && s.exposed_ms > 0 ? ms(s.exposed_ms) : seconds(past?.exposed_s)}{has(past?.exposed_s) && has(past?.makespan_s) && past.makespan_s > 0 && <span class="soft"> {share(past.exposed_s / past.makespan_s)} of {seconds(past.makespan_s)}</span>}</Fact>
        <Fact name="zero-std groups">{past?.groups ? `${count(past.zero_std_groups)} of ${count(past.groups)}` : "–"}</Fact>
      </dl>
      {without.length > 0 && <Waits without={without} total={s?.in_flight ?? without.length} />}
      <Section title="Samples by worker over time">
        {drawn && (drawn.spans ?? []).length > 0
          ? <Timeline trace={drawn} without={without} open={(id) => void open(id)} running={live} />
          : trace.loading || rest.loading ? <p class="empty" aria-busy="true">Loading…</p> : <Empty>{trace.error?.message ?? rest.error?.message ?? "No times of this step are known."}</Empty>}
      </Section>
      <Section title="Distributions">
        <Shown of={histogram} what="Distributions">{(d) => {
          const names = Object.keys(d.columns).filter((n) => n !== "reward").sort();
          const all = ["reward", ...names].filter((n) => d.columns[n]);
          return all.length ? <div class="histograms">{all.map((n) => <HistogramChart key={n} name={n} of={d.columns[n]!} cls={n === "reward" ? "c0" : tint(names, n)} />)}</div> : <Empty>No value is kept yet.</Empty>;
        }}</Shown>
      </Section>
      <Section title="Groups" aside={<Tabs label="Order of groups" at={{ zero_std: "zero std first", std: "by std" }[query.groups ?? ""] ?? "as they came"} of={[
        { name: "as they came", href: stay({ groups: undefined }) }, { name: "zero std first", href: stay({ groups: "zero_std" }) }, { name: "by std", href: stay({ groups: "std" }) },
      ]} />}>
        <Shown of={groups} what="Groups">{(d) => d.groups.length
          ? <Dots groups={d.groups} lo={range?.lo ?? Math.min(0, ...values(d.groups))} hi={range?.hi ?? Math.max(1, ...values(d.groups))} href={(g) => groupLink(run, Number(step), g.uid, split, epoch)} />
          : <Empty>The step has no prompt groups.</Empty>}</Shown>
      </Section>
      <Section title="Samples" id="samples" aside={<a href={to(["samples"], { run, step, split, epoch })}>search</a>}>
        <Tabs label="Which samples" at={show[0]!} of={shows.map(([name]) => ({ name, href: stay({ show: name }), count: name === "failed" ? failed.data?.total : undefined, tone: failed.data?.total ? "bad" : "" }))} />
        <Shown of={rows} what="Samples">{(d) => d.results.length
          ? <Gallery rows={d.results} aside={(r) => show[0] === "slowest" ? ms(r.timing_ms.total) : r.attempts > 1 ? plural(r.attempts, "attempt") : ""} />
          : <Empty>{show[0] === "failed" ? "No sample of this step failed." : "The store holds no sample of this step."}</Empty>}</Shown>
      </Section>
    </>
  );
}

const values = (groups: Group[]) => groups.flatMap((g) => g.members.flatMap((m) => (has(m.score) ? [m.score] : [])));

function Waits({ without, total }: { without: StepState["without"] & object; total: number }) {
  const list = [...without].sort((a, b) => (b.age_ms ?? 0) - (a.age_ms ?? 0));
  return (
    <Section title="Samples without a result" aside={total > list.length ? `the first ${list.length} of ${count(total)}` : plural(list.length, "sample")}>
      <Scroll label="Samples without a result">
        <table>
          <thead><tr><th>sample</th><th>stage</th><th class="n">age</th><th>worker</th></tr></thead>
          <tbody>{list.slice(0, 8).map((m, i) => (
            <tr key={i}><td><Id text={m.id ?? m.uid ?? "not yet arrived"} most={48} /></td><td>{m.stage.replaceAll("_", " ")}</td><td class="n">{ms(m.age_ms)}</td><td>{m.worker ? <Id text={m.worker} /> : "–"}</td></tr>
          ))}</tbody>
        </table>
      </Scroll>
      {list.length > 8 && <p class="note">and {plural(list.length - 8, "more", "more")}; <a href="#/pending">all that are pending</a></p>}
    </Section>
  );
}

// lookUp is the key of the sample with an id; null: the store does not hold it.
export async function lookUp(run: string, step: string, split: string, id: string, signal: AbortSignal): Promise<number | string | null> {
  const found = await get<Results>(`/v1/results${queryOf({ run, step, split, q: id, limit: 100 })}`, signal);
  return found.results.find((r) => r.id === id)?.key ?? null;
}
