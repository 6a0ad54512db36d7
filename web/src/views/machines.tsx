import { ago, bytes, clock, count, middle, ms, plural } from "../format.ts";
import { Meter } from "../charts.tsx";
import { useGet } from "../hooks.ts";
import { runLink, stepLink } from "../route.ts";
import { findLink } from "./failures.tsx";
import type { EngineServer, Pending, Worker, Workers } from "../types.ts";
import { Empty, Id, Long, Scroll, Section, Shown, usePageTitle } from "../ui.tsx";

const tone = (state: string) => (state === "ready" || state === "ok" ? "good" : state === "draining" || state === "starting" || state === "slow" ? "wait" : "bad");

// own are a worker's rewards without those of the process itself.
const own = (w: Worker) => (w.profiles ?? []).filter((p) => !(p.name ?? "").startsWith("_"));
const places = (w: Worker) => Math.max(0, ...own(w).map((p) => p.capacity));

export function WorkersView() {
  usePageTitle("Workers");
  const workers = useGet<Workers>("/v1/workers", 2_000);
  return (
    <>
      <h1>Workers</h1>
      <Shown of={workers} what="Workers">{(d) => (
        <>
          {d.breakers.length > 0 && (
            <Section title="Workers that get no samples of a reward">
              <Scroll label="Workers that get no samples"><table>
                <thead><tr><th>worker</th><th>reward</th><th>state</th><th>since</th><th>next try</th><th>reason</th></tr></thead>
                <tbody>{d.breakers.map((b, i) => <tr key={i}><td><Id text={b.worker} /></td><td>{b.reward || "default"}</td><td class="bad">{b.state}</td><td>{clock(b.since)}</td><td>{b.permanent ? "after a restart" : clock(b.until)}</td><td class="text bad">{b.reason}</td></tr>)}</tbody>
              </table></Scroll>
            </Section>
          )}
          {d.workers.length > 0 && d.breakers.length > 0 && <h2 class="apart">All workers</h2>}
          {d.workers.length === 0 ? <Empty>No worker is connected.</Empty> : (
            <Scroll label="Workers"><table>
              <thead><tr><th>worker</th><th>state</th><th>busy</th><th class="n">scored</th><th class="n">failed</th><th>rewards and places</th><th>host and devices</th><th>seen</th></tr></thead>
              <tbody>{d.workers.map((w) => (
                <tr key={w.id}>
                  <td data-nav tabIndex={-1}><Id text={w.id} /></td><td class={tone(w.state)}>{w.state}</td>
                  <td class="meter-cell">{w.busy} of {places(w)}<Meter value={w.busy} of={places(w)} label="Busy" /></td>
                  <td class="n">{count(w.scored)}</td><td class={"n" + (w.failed ? " bad" : "")}>{count(w.failed)}</td>
                  <td class="text">{own(w).map((p, i) => <span key={i} class="one">{p.name || "default"} <span class="soft">{p.capacity}</span>{p.waits && <span class="bad"> {p.waits}</span>}</span>)}</td>
                  <td class="text">{[w.host, ...(w.devices ?? [])].filter(Boolean).join(", ") || "–"}</td><td title={clock(w.seen)}>{ago(w.seen)}</td>
                </tr>
              ))}</tbody>
            </table></Scroll>
          )}
        </>
      )}</Shown>
    </>
  );
}

export function Engines() {
  usePageTitle("Engines and devices");
  const engines = useGet<{ servers: EngineServer[] }>("/v1/engines", 3_000);
  const workers = useGet<Workers>("/v1/workers", 10_000);
  const hosts = new Map<string, Worker[]>();
  for (const w of workers.data?.workers ?? []) hosts.set(w.host ?? "", [...(hosts.get(w.host ?? "") ?? []), w]);
  const all = (ws: Worker[], of: "devices" | "models") => [...new Set(ws.flatMap((w) => w[of] ?? []))].sort();
  return (
    <>
      <h1>Engines and devices</h1>
      <Section title="Servers of engines that this process has started">
        <Shown of={engines} what="Engines">{(d) => d.servers.length === 0 ? <Empty>This process has started no engine.</Empty> : (
          <ul class="engines">{d.servers.map((s, i) => (
            <li key={i}>
              <div class="failure-head"><b><Id text={s.name} /></b><span class={"tag " + tone(s.state)}>{s.state}</span><span>{s.kind} <span class="soft">{s.engine}</span></span><span class="soft end" title={clock(s.since)}>for {ago(s.since).replace(" ago", "")}</span></div>
              <dl class="facts">
                <div class="fact wide"><dt>model</dt><dd><Id text={s.model} most={60} /></dd></div>
                <div class="fact"><dt>under way</dt><dd>{count(s.in_flight)}</dd></div>
                <div class="fact"><dt>requests</dt><dd>{count(s.requests)}</dd></div>
                <div class="fact"><dt>failures</dt><dd class={s.failures ? "bad" : ""}>{count(s.failures)}</dd></div>
                <div class="fact"><dt>starts</dt><dd class={s.starts > 1 ? "wait" : ""}>{count(s.starts)}</dd></div>
                <div class="fact wide"><dt>address</dt><dd><Id text={s.url} most={60} /></dd></div>
                {s.log && <div class="fact wide"><dt>log</dt><dd><Id text={s.log} most={60} /></dd></div>}
              </dl>
              {s.why && <Long cls="message" text={s.why} />}
            </li>
          ))}</ul>
        )}</Shown>
      </Section>
      <Section title="Devices and models of workers">
        <Shown of={workers} what="Workers">{() => hosts.size === 0 ? <Empty>No worker is connected.</Empty> : (
          <Scroll label="Devices"><table>
            <thead><tr><th>host</th><th class="n">workers</th><th>devices</th><th>models</th></tr></thead>
            <tbody>{[...hosts].map(([host, ws]) => <tr key={host}><td><Id text={host || "this process"} /></td><td class="n">{ws.length}</td><td class="text">{all(ws, "devices").join(", ") || "CPU only"}</td><td class="text">{all(ws, "models").join(", ") || "–"}</td></tr>)}</tbody>
          </table></Scroll>
        )}</Shown>
      </Section>
    </>
  );
}

export function PendingView() {
  usePageTitle("Pending");
  const pending = useGet<Pending>("/v1/pending?limit=200", 1_500);
  return (
    <>
      <h1>Pending samples</h1>
      <Shown of={pending} what="Pending samples">{(d) => (
        <>
          {d.rewards.length > 0 && (
            <ul class="status">{d.rewards.map((r) => (
              <li key={r.reward} class={"level-" + (r.state === "stopped" || r.state === "failing" ? "bad" : "wait")}>
                <span class="mark" role="img" aria-label={r.state} />
                <span class="say"><b>{r.reward}</b> {r.state}{r.why ? `: ${r.why}` : ""} <span class="soft">{count(r.waiting)} waiting, {count(r.running)} with workers, since {clock(r.since)}</span></span>
              </li>
            ))}</ul>
          )}
          <p class="lead">{d.total === 0 ? "Nothing is pending." : `${plural(d.total, "sample")} without a result, the oldest first${d.samples.length < d.total ? `: the first ${d.samples.length}` : ""}. They hold ${bytes(d.held_bytes)}; ${bytes(d.granted_bytes)} more may come.`}</p>
          {d.samples.length > 0 && (
            <ul class="pending">{d.samples.map((s) => (
              <li key={s.run + "\u0000" + s.id}>
                <div class="failure-head">
                  <b class={s.age_ms > 20_000 ? "wait" : ""}>{ms(s.age_ms)}</b>
                  <a href={findLink(s)} data-nav><Id text={s.id} most={44} /></a>
                  <span class="tag">{s.stage.replaceAll("_", " ")}</span>
                  <span class="soft">run <a href={runLink(s.run)}>{middle(s.run, 32)}</a>, <a href={stepLink(s.run, s.step)}>step {s.step}</a>{s.attempt > 1 && <>, <span class="wait">attempt {s.attempt}</span></>}{s.workers?.length ? `, ${s.workers.join(", ")}` : ""}, {bytes(s.bytes)}</span>
                </div>
                {s.waits && <Long cls="message soft-message" text={s.waits} />}
                {s.last_error && <p class="message clamp">{s.last_error}</p>}
              </li>
            ))}</ul>
          )}
        </>
      )}</Shown>
    </>
  );
}
