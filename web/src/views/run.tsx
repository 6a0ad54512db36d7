import { columnsOf, HistoryChart } from "../charts.tsx";
import { count, has, plural, score, seconds, share } from "../format.ts";
import { useGet, useWritten } from "../hooks.ts";
import { runLink, stepLink, to } from "../route.ts";
import type { Hint, HistoryRun, HistoryStep, Results } from "../types.ts";
import { Empty, Gallery, Id, Scroll, Section, Shown, Tabs, usePageTitle } from "../ui.tsx";
import { HintList } from "./hints.tsx";

export function RunView({ run, query }: { run: string; query: Record<string, string> }) {
  usePageTitle("Run " + run);
  const split = query.split ?? "train";
  const of = new URLSearchParams({ run, split });
  const history = useGet<{ steps: HistoryStep[] }>(`/v1/history?${of}`, 15_000);
  const runs = useGet<{ runs: HistoryRun[] }>("/v1/history/runs", 60_000);
  const hints = useGet<{ hints: Hint[] }>(`/v1/hints?${of}`, 60_000);
  const newest = useGet<Results>(`/v1/results?${of}&limit=12`, 15_000);
  useWritten((w) => {
    if (w.run !== run) return;
    history.reload();
    newest.reload();
  });
  const known = runs.data?.runs.find((r) => r.run === run);
  const splits = known?.splits ?? [];
  return (
    <>
      <p class="crumbs"><a href="#/" data-up>Overview</a></p>
      <h1>Run <Id text={run} most={60} /></h1>
      {known && <p class="lead">{plural(known.samples, "sample")} in {plural(known.steps, "step")}, {count(known.failed)} failed{known.rewards.length ? `, scored by ${known.rewards.map((r) => r || "default").join(", ")}` : ""}. <a href={to(["compare"], { runs: encodeURIComponent(run) })}>Compare with other runs</a></p>}
      {splits.length > 1 && <Tabs label="Splits" at={split} of={splits.map((s) => ({ name: s, href: runLink(run, s) }))} />}
      <Shown of={history} what="The run's steps">
        {(d) => d.steps.length === 0 ? <Empty>No step of this run is kept ({split}).</Empty> : (
          <>
            <HistoryChart steps={d.steps} run={run} pick={(s) => { location.hash = stepLink(run, s.step, split); }} />
            {hints.data && hints.data.hints.length > 0 && <Section title="Hints"><HintList hints={hints.data.hints} /></Section>}
            <Section title="Steps" aside={plural(d.steps.length, "step")}><StepTable run={run} split={split} steps={d.steps} /></Section>
          </>
        )}
      </Shown>
      <Section title="Newest samples" aside={<a href={to(["samples"], { run, split })}>{newest.data ? `all ${count(newest.data.total)}` : "all"}</a>}>
        <Shown of={newest} what="Samples">{(d) => d.results.length ? <Gallery rows={d.results} /> : <Empty>The store holds no sample of this run.</Empty>}</Shown>
      </Section>
    </>
  );
}

function StepTable({ run, split, steps }: { run: string; split: string; steps: HistoryStep[] }) {
  const names = columnsOf(steps);
  const shown = [...steps].reverse().slice(0, 200);
  return (
    <Scroll label="Steps of the run">
      <table>
        <thead><tr><th class="n">step</th><th class="n">samples</th><th class="n">failed</th><th class="n">reward</th>{names.length > 1 && names.slice(0, 8).map((n) => <th class="n" key={n} title={n}><span class="clip">{n}</span></th>)}<th class="n">zero-std groups</th><th class="n">exposed</th><th class="n">of the step</th></tr></thead>
        <tbody>{shown.map((s) => (
          <tr key={s.step}>
            <td class="n"><a href={stepLink(run, s.step, split)} data-nav>{s.step}</a></td><td class="n">{count(s.samples)}</td>
            <td class={"n" + (s.failed ? " bad" : "")}>{s.failed ? <a href={to(["samples"], { run, step: s.step, split, failed: 1 })}>{count(s.failed)}</a> : "0"}</td>
            <td class="n">{score(s.mean)} <span class="soft">± {score(s.std)}</span></td>
            {names.length > 1 && names.slice(0, 8).map((n) => <td class="n" key={n}>{score(s.components[n]?.mean)}</td>)}
            <td class={"n" + (s.zero_std_groups && s.zero_std_groups === s.groups ? " wait" : "")}>{s.groups ? `${count(s.zero_std_groups)} of ${count(s.groups)}` : "–"}</td>
            <td class="n">{seconds(s.exposed_s)}</td><td class="n">{has(s.exposed_s) && has(s.makespan_s) && s.makespan_s > 0 ? share(s.exposed_s / s.makespan_s) : "–"}</td>
          </tr>
        ))}</tbody>
      </table>
    </Scroll>
  );
}
