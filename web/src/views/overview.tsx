import { ago, bytes, clock, count, has, perSecond, plural, score, seconds, share } from "../format.ts";
import { HistoryChart, Meter } from "../charts.tsx";
import { useGet, useLive, useWritten } from "../hooks.ts";
import { runLink, stepLink, to } from "../route.ts";
import type { Failures, Hint, HistoryRun, HistoryStep, Overview as State, OverviewRun } from "../types.ts";
import { Empty, Fact, Id, Scroll, Section, StatusLines, Trouble, usePageTitle } from "../ui.tsx";
import { FailureTable } from "./failures.tsx";
import { HintList } from "./hints.tsx";

export function Overview() {
  usePageTitle("");
  const { overview, link, error } = useLive();
  const past = useGet<{ runs: HistoryRun[] }>("/v1/history/runs", 30_000);
  const failures = useGet<Failures>("/v1/failures", 5_000);
  const hints = useGet<{ hints: Hint[] }>("/v1/hints", 60_000);
  const live = new Set(overview?.runs.map((r) => r.run));
  const over = past.data?.runs.filter((r) => !live.has(r.run)) ?? [];
  const kinds = failures.data?.failures ?? [];
  return (
    <>
      <h1 class="quiet">Overview</h1>
      {overview === null
        ? link === "lost" ? <Trouble what="The state" error={new Error(error)} /> : <p class="empty" aria-busy="true">Loading…</p>
        : <Now state={overview} />}
      {overview?.runs.map((r) => <Run key={r.run + "\u0000" + r.split} of={r} />)}
      {overview && overview.runs.length === 0 && <Empty>No run has sent samples since this server began.</Empty>}
      <Section title="Failures" aside={kinds.length > 0 ? <a href="#/failures">{plural(kinds.length, "kind")}, {plural(failures.data!.total, "failure")}</a> : undefined}>
        {failures.error && !failures.data ? <Trouble what="Failures" error={failures.error} /> : kinds.length ? <FailureTable of={kinds.slice(0, 5)} brief /> : <Empty>Nothing has failed.</Empty>}
      </Section>
      {hints.data && hints.data.hints.length > 0 && (
        <Section title="Hints" aside={<a href="#/hints">{plural(hints.data.hints.length, "hint")}</a>}><HintList hints={hints.data.hints.slice(0, 4)} /></Section>
      )}
      {over.length > 0 && (
        <Section title="Earlier runs" aside={<a href="#/compare">compare</a>}>
          <Scroll label="Earlier runs">
            <table>
              <thead><tr><th>run</th><th class="n">steps</th><th class="n">samples</th><th class="n">failed</th><th class="n">last mean</th><th>rewards</th><th>last sample</th></tr></thead>
              <tbody>{over.slice(0, 20).map((r) => (
                <tr key={r.run}>
                  <td><a href={runLink(r.run)} data-nav><Id text={r.run} /></a></td><td class="n">{count(r.steps)}</td><td class="n">{count(r.samples)}</td>
                  <td class={"n" + (r.failed ? " bad" : "")}>{r.failed ? <a href={to(["samples"], { run: r.run, failed: 1 })}>{count(r.failed)}</a> : "0"}</td>
                  <td class="n">{score(r.mean)}</td><td>{r.rewards.map((n) => n || "default").join(", ")}</td><td title={clock(r.last)}>{ago(r.last)}</td>
                </tr>
              ))}</tbody>
            </table>
          </Scroll>
        </Section>
      )}
    </>
  );
}

function Now({ state }: { state: State }) {
  const s = state.store;
  return (
    <>
      <StatusLines lines={state.status} />
      {state.reasons.length > 0 && <ul class="reasons">{state.reasons.map((r, i) => <li key={i}>{r}</li>)}</ul>}
      <dl class="facts strip">
        <Fact name="in flight" href="#/pending">{count(state.in_flight)}</Fact>
        <Fact name="waiting">{count(state.waiting)}</Fact>
        <Fact name="with workers" href="#/workers">{count(state.running)}</Fact>
        <Fact name="capacity in use">
          {state.slots > 0 ? `${count(state.busy)} of ${count(state.slots)}` : "no worker"}
          <Meter value={state.busy} of={state.slots} label="Capacity in use" />
        </Fact>
        <Fact name="samples">{perSecond(state.samples_per_s)}</Fact>
        <Fact name="scored">{count(state.scored_total)}</Fact>
        <Fact name="failed" tone={state.failed_total ? "bad" : ""} href="#/failures">{count(state.failed_total)}</Fact>
        <Fact name="held">{bytes(state.held_bytes)}</Fact>
        <Fact name="store" tone={s.error ? "bad" : ""}>{s.on ? `${bytes(s.bytes)} of ${bytes(s.limit_bytes)}` : "off"}</Fact>
      </dl>
      {s.error !== "" && <p class="trouble">The store: {s.error}</p>}
      {s.dropped > 0 && <p class="note">The store could not keep {plural(s.dropped, "row")}; their rewards were answered all the same.</p>}
      {!s.on && <p class="note">The store is off, so finished steps, their pictures and curves are not kept.</p>}
    </>
  );
}

function Run({ of }: { of: OverviewRun }) {
  const history = useGet<{ steps: HistoryStep[] }>(`/v1/history?${new URLSearchParams({ run: of.run, split: of.split })}`, 15_000);
  useWritten((w) => {
    if (w.run === of.run) history.reload();
  });
  const steps = history.data?.steps ?? [];
  const here = stepLink(of.run, of.step, of.split);
  return (
    <section class="section run">
      <div class="section-head">
        <h2>Run <a href={runLink(of.run, of.split)} data-nav><Id text={of.run} most={44} /></a></h2>
        <div class="aside"><a href={here}>step {of.step}</a>{of.split !== "train" && ` (${of.split})`}{steps.length > 1 ? ` · ${plural(steps.length, "step")} kept` : ""}</div>
      </div>
      <div class="run-body">
        <dl class="facts tall">
          <Fact name="reward">{score(of.mean)} <span class="soft">± {score(of.std)}</span></Fact>
          <Fact name="samples" href={here}>
            {count(of.samples)}{has(of.expected) && <> of {count(of.expected)}</>}
            {has(of.expected) && <Meter value={of.samples} of={of.expected} label="Samples of the step" />}
          </Fact>
          <Fact name="exposed" tone={has(of.exposed_share) && of.exposed_share > 0.05 ? "wait" : ""} href={here}>{seconds(of.exposed_s)}{has(of.exposed_share) && <span class="soft"> {share(of.exposed_share)} of the step</span>}</Fact>
          <Fact name="failed" tone={of.failed_share ? "bad" : ""} href={of.failed_share ? to(["run", of.run, "step", of.step], { split: of.split === "train" ? undefined : of.split, show: "failed" }) : undefined}>{share(of.failed_share)}</Fact>
          <Fact name="zero-std groups" tone={of.zero_std_groups > 0 && of.zero_std_groups === of.groups ? "wait" : ""}>{of.groups ? `${count(of.zero_std_groups)} of ${count(of.groups)}` : "–"}</Fact>
        </dl>
        {steps.length > 0
          ? <HistoryChart steps={steps} run={of.run} small pick={(s) => { location.hash = stepLink(of.run, s.step, of.split); }} />
          : history.error ? <Trouble what="The run's steps" error={history.error} /> : <Empty>{history.loading ? "Loading…" : "No step is kept yet."}</Empty>}
      </div>
    </section>
  );
}
