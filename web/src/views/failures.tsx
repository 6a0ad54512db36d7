import { ago, clock, count, middle, plural } from "../format.ts";
import { useGet, useWritten } from "../hooks.ts";
import { runLink, stepLink, to } from "../route.ts";
import type { FailedSample, Failure, Failures, Results } from "../types.ts";
import { Empty, Gallery, Id, Long, Section, Shown, usePageTitle } from "../ui.tsx";

export const findLink = (s: { run: string; step: number; split?: string; id: string }) =>
  to(["find"], { run: s.run, step: s.step, split: s.split === "train" ? undefined : s.split, id: s.id });

// FailureTable is what has failed, alike ones together.
export function FailureTable({ of, brief }: { of: Failure[]; brief?: boolean }) {
  return (
    <ul class="failures">
      {of.map((f, i) => {
        const newest = f.samples[0];
        return (
          <li key={i}>
            <div class="failure-head">
              <b class="bad">{count(f.count)}</b>
              <span class="tag bad">{f.class}</span>
              <span><b>{f.component || "the sample as a whole"}</b> <span class="soft">of reward {f.reward || "default"}</span></span>
              <span class="soft">{[f.scored > 0 && `${count(f.scored)} scored without it`, f.blame && `blamed on the ${f.blame}`].filter(Boolean).join(", ")}</span>
              <span class="soft end" title={clock(f.last)}>{ago(f.last)}</span>
            </div>
            {brief ? <p class="message clamp">{f.message}</p> : <Long cls="message" text={f.message} />}
            {brief
              ? newest && <p class="samples-of"><a href={findLink(newest)} data-nav>See the newest: <Id text={newest.id} most={40} /></a></p>
              : <Which of={f.samples} workers={f.workers ?? []} first={f.first} />}
          </li>
        );
      })}
    </ul>
  );
}

function Which({ of, workers, first }: { of: FailedSample[]; workers: string[]; first: string }) {
  const runs = [...new Set(of.map((s) => s.run))];
  return (
    <>
      {runs.slice(0, 4).map((run) => (
        <p class="samples-of" key={run}>
          <span class="soft">newest of run </span><a href={runLink(run)}>{middle(run, 32)}</a>
          {of.filter((s) => s.run === run).slice(0, 6).map((s, i) => (
            <span key={i} class="one"><a href={findLink(s)} data-nav><Id text={s.id} most={26} /></a> <a class="soft" href={stepLink(s.run, s.step, s.split)}>step {s.step}</a></span>
          ))}
        </p>
      ))}
      <p class="samples-of soft">since {clock(first)}{workers.length > 0 && <> on {workers.slice(0, 8).map((w, i) => <span key={w}>{i > 0 ? ", " : ""}<Id text={w} most={24} /></span>)}{workers.length > 8 && ` and ${workers.length - 8} more`}</>}</p>
    </>
  );
}

export function FailuresView({ query }: { query: Record<string, string> }) {
  usePageTitle("Failures");
  const path = "/v1/failures" + (query.reward !== undefined ? `?${new URLSearchParams({ reward: query.reward })}` : "");
  const failures = useGet<Failures>(path, 3_000);
  const rows = useGet<Results>(`/v1/results?${new URLSearchParams({ failed: "1", sort: "newest", limit: "24", ...(query.reward !== undefined ? { reward: query.reward } : {}) })}`, 10_000);
  useWritten(() => rows.reload());
  return (
    <>
      <h1>Failures</h1>
      <Shown of={failures} what="Failures">
        {(d) => d.failures.length
          ? <><p class="lead">{plural(d.total, "sample")} failed since this server began, in {plural(d.failures.length, "kind")}, the newest first.</p><FailureTable of={d.failures} /></>
          : <Empty>Nothing has failed since this server began.</Empty>}
      </Shown>
      <Section title="Newest failed samples" aside={rows.data && rows.data.total > rows.data.results.length ? <a href={to(["samples"], { failed: 1, reward: query.reward })}>all {count(rows.data.total)}</a> : undefined}>
        <Shown of={rows} what="Failed samples">
          {(d) => d.results.length ? <Gallery rows={d.results} aside={(r) => `step ${r.step}`} /> : <Empty>The store holds no failed sample.</Empty>}
        </Shown>
      </Section>
    </>
  );
}
