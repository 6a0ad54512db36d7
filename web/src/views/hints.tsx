import { count, score } from "../format.ts";
import { useGet } from "../hooks.ts";
import { safe, to } from "../route.ts";
import type { Hint } from "../types.ts";
import { Empty, Shown, Tabs, usePageTitle } from "../ui.tsx";
import type { HistoryRun } from "../types.ts";

export function HintList({ hints }: { hints: Hint[] }) {
  return (
    <ul class="hints">
      {hints.map((h, i) => {
        const link = safe(h.link);
        return (
          <li key={i}>
            <span class="tag">{h.kind}</span>
            <span class="hint-text">{link ? <a href={link} data-nav>{h.text}</a> : h.text}</span>
            <span class="soft">{typeof h.r === "number" ? `r = ${score(h.r)}, ` : ""}{count(h.n)} samples</span>
          </li>
        );
      })}
    </ul>
  );
}

export function Hints({ query }: { query: Record<string, string> }) {
  usePageTitle("Hints");
  const run = query.run ?? "";
  const runs = useGet<{ runs: HistoryRun[] }>("/v1/history/runs");
  const hints = useGet<{ hints: Hint[] }>("/v1/hints" + (run ? `?${new URLSearchParams({ run })}` : ""), 30_000);
  return (
    <>
      <h1>Hints</h1>
      <p class="lead">Correlations of a reward that may be unintended (length, size, colour, repetition), and values at the end of their range. A hint is not a fault; its link shows the samples.</p>
      {runs.data && runs.data.runs.length > 1 && (
        <Tabs label="Runs" at={run || "all runs"} of={[{ name: "all runs", href: "#/hints" }, ...runs.data.runs.slice(0, 8).map((r) => ({ name: r.run, href: to(["hints"], { run: r.run }) }))]} />
      )}
      <Shown of={hints} what="Hints">{(d) => d.hints.length ? <HintList hints={d.hints} /> : <Empty>Nothing stands out among the newest samples.</Empty>}</Shown>
    </>
  );
}
