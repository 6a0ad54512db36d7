import { useEffect, useState } from "preact/hooks";
import { get } from "../api.ts";
import { columnsOf, Panels, type Panel } from "../charts.tsx";
import { count, middle, score, seconds, share } from "../format.ts";
import { useGet } from "../hooks.ts";
import { queryOf, runLink, to } from "../route.ts";
import type { HistoryRun, HistoryStep, Num } from "../types.ts";
import { Empty, Id, Scroll, Shown, Trouble, usePageTitle } from "../ui.tsx";

const most = 6;

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

export function Compare({ query }: { query: Record<string, string> }) {
  usePageTitle("Runs compared");
  const runs = useGet<{ runs: HistoryRun[] }>("/v1/history/runs", 20_000);
  const named = query.runs === undefined ? null : query.runs.split(",").map(decode).filter(Boolean).slice(0, most);
  const chosen = named ?? runs.data?.runs.slice(0, 3).map((r) => r.run) ?? [];
  const split = query.split ?? "train", column = query.column ?? "reward";
  const [histories, setHistories] = useState<Record<string, HistoryStep[]>>({});
  const [error, setError] = useState<Error | null>(null);
  const wanted = chosen.join("\u0000");
  useEffect(() => {
    const stop = new AbortController();
    const load = () => Promise.all(chosen.map(async (run) => [run, (await get<{ steps: HistoryStep[] }>(`/v1/history${queryOf({ run, split })}`, stop.signal)).steps] as const))
      .then((list) => {
        setHistories(Object.fromEntries(list));
        setError(null);
      })
      .catch((err: unknown) => {
        if (!stop.signal.aborted) setError(err instanceof Error ? err : new Error(String(err)));
      });
    void load();
    const timer = setInterval(() => void load(), 20_000);
    return () => {
      stop.abort();
      clearInterval(timer);
    };
  }, [wanted, split]);
  const go = (more: Record<string, string | undefined>) => to(["compare"], { ...query, ...more });
  const pick = (list: string[]) => { location.hash = go({ runs: list.map(encodeURIComponent).join(",") }); };
  const columns = columnsOf(chosen.flatMap((r) => histories[r] ?? []));
  const x = [...new Set(chosen.flatMap((r) => (histories[r] ?? []).map((s) => s.step)))].sort((a, b) => a - b);
  const of = (value: (s: HistoryStep) => Num) => chosen.map((run, i) => {
    const by = new Map((histories[run] ?? []).map((s) => [s.step, s]));
    return { name: run, cls: `c${i + 1}`, y: x.map((step) => (by.has(step) ? value(by.get(step)!) : null)) };
  });
  const main = (s: HistoryStep) => (column === "reward" ? s.mean : s.components[column]?.mean);
  const panels: Panel[] = [
    { title: `${column}, mean`, kind: "line", height: 200, say: score, series: of(main) },
    { title: "std", kind: "line", height: 60, say: score, zero: true, series: of((s) => (column === "reward" ? s.std : s.components[column]?.std)) },
    { title: "exposed seconds", kind: "line", height: 60, say: seconds, zero: true, series: of((s) => s.exposed_s) },
    { title: "failed share", kind: "line", height: 50, say: share, zero: true, series: of((s) => (s.samples > 0 ? s.failed / s.samples : null)) },
    { title: "zero-std groups, share", kind: "line", height: 50, say: share, zero: true, series: of((s) => (s.groups > 0 ? s.zero_std_groups / s.groups : null)) },
  ];
  return (
    <>
      <h1>Runs compared</h1>
      <Shown of={runs} what="Runs">{(d) => d.runs.length === 0 ? <Empty>The store holds no run yet.</Empty> : (
        <>
          <div class="filter">
            <fieldset class="runs">
              <legend>runs, up to {most}</legend>
              {[...new Set([...chosen, ...d.runs.slice(0, 24).map((r) => r.run)])].map((run) => {
                const at = chosen.indexOf(run);
                return (
                  <label key={run} class={"check" + (at >= 0 ? ` on c${at + 1}` : "")}>
                    <input type="checkbox" checked={at >= 0} disabled={at < 0 && chosen.length >= most} onChange={() => pick(at >= 0 ? chosen.filter((r) => r !== run) : [...chosen, run])} />
                    <span class="swatch" />{middle(run, 32)}
                  </label>
                );
              })}
            </fieldset>
            <label>column <select value={column} onChange={(e) => { location.hash = go({ column: e.currentTarget.value }); }}>{["reward", ...columns.filter((c) => c !== "reward")].map((c) => <option key={c}>{c}</option>)}</select></label>
            <label>split <select value={split} onChange={(e) => { location.hash = go({ split: e.currentTarget.value }); }}><option>train</option><option>val</option></select></label>
          </div>
          {error && <Trouble what="A run" error={error} />}
          {x.length > 0 ? <Panels x={x} panels={panels} label="Steps of the chosen runs: arrow keys move" ends /> : <Empty>{chosen.length ? `The chosen runs have no step that is kept (${split}).` : "No run is chosen."}</Empty>}
          {chosen.length > 0 && x.length > 0 && (
            <Scroll label="Newest steps of the chosen runs"><table>
              <thead><tr><th>run</th><th class="n">steps</th><th class="n">last step</th><th class="n">{column}</th><th class="n">best mean</th><th class="n">at step</th><th class="n">samples</th><th class="n">failed</th></tr></thead>
              <tbody>{chosen.map((run, i) => {
                const steps = histories[run] ?? [];
                const last = steps[steps.length - 1];
                const best = steps.reduce<HistoryStep | undefined>((b, s) => ((main(s) ?? -Infinity) > ((b && main(b)) ?? -Infinity) ? s : b), undefined);
                const sum = (f: (s: HistoryStep) => number) => steps.reduce((n, s) => n + f(s), 0);
                return (
                  <tr key={run}><td class={`c${i + 1}`}><span class="swatch" /><a href={runLink(run, split)} data-nav><Id text={run} /></a></td><td class="n">{count(steps.length)}</td><td class="n">{last ? last.step : "–"}</td>
                    <td class="n">{score(last && main(last))}</td><td class="n">{score(best && main(best))}</td><td class="n">{best ? best.step : "–"}</td><td class="n">{count(sum((s) => s.samples))}</td><td class={"n" + (sum((s) => s.failed) ? " bad" : "")}>{count(sum((s) => s.failed))}</td></tr>
                );
              })}</tbody>
            </table></Scroll>
          )}
        </>
      )}</Shown>
    </>
  );
}
