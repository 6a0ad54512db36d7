import { useEffect, useRef, useState } from "preact/hooks";
import { count, ms } from "../format.ts";
import { useGet, useWritten } from "../hooks.ts";
import { queryOf, to } from "../route.ts";
import type { HistoryRun, Results } from "../types.ts";
import { Empty, Gallery, Shown, Tabs, usePageTitle } from "../ui.tsx";

const sorts = ["newest", "oldest", "best", "worst", "slowest", "disagreeing"];
const page = 48;

export function Samples({ query }: { query: Record<string, string> }) {
  usePageTitle("Samples");
  const { run = "", step = "", split = "", epoch = "", reward, uid = "", outcome = "", failed = "", q = "", sort = "newest" } = query;
  const offset = Math.max(0, Math.floor(Number(query.offset) || 0));
  const runs = useGet<{ runs: HistoryRun[] }>("/v1/history/runs", 60_000);
  const rows = useGet<Results>(`/v1/results${queryOf({ run, step, split, epoch, reward, uid, outcome, failed, q, sort, limit: page, offset: offset || undefined })}`);
  useWritten(() => {
    if (sort === "newest" && offset === 0) rows.reload();
  });
  const go = (more: Record<string, string | number | undefined>) => to(["samples"], { ...query, offset: undefined, ...more });
  const [text, setText] = useState(q);
  const sent = useRef(q); // what this field has put into the address: when that comes back, more may have been typed
  useEffect(() => {
    if (q === sent.current) return;
    sent.current = q;
    clearTimeout(timer.current);
    setText(q);
  }, [q]);
  const timer = useRef<ReturnType<typeof setTimeout> | undefined>(undefined);
  const search = (value: string) => {
    setText(value);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => {
      sent.current = value;
      location.replace(go({ q: value }));
    }, 350);
  };
  useEffect(() => () => clearTimeout(timer.current), []);
  const names = new Set([...(run ? [run] : []), ...(runs.data?.runs ?? []).map((r) => r.run)]);
  return (
    <>
      <h1>Samples</h1>
      <form class="filter" onSubmit={(e) => e.preventDefault()}>
        <label class="grow">prompt, answer or id <input type="search" value={text} maxLength={200} onInput={(e) => search(e.currentTarget.value)} /></label>
        <label>run <select value={run} onChange={(e) => { location.hash = go({ run: e.currentTarget.value, step: undefined, epoch: undefined, uid: undefined }); }}>
          <option value="">all</option>{[...names].map((n) => <option key={n} value={n}>{n.length > 40 ? n.slice(0, 39) + "…" : n}</option>)}
        </select></label>
        <label>step <input class="small" type="number" min={0} value={step} onChange={(e) => { location.hash = go({ step: e.currentTarget.value }); }} /></label>
        <label>split <select value={split} onChange={(e) => { location.hash = go({ split: e.currentTarget.value }); }}><option value="">all</option><option>train</option><option>val</option></select></label>
        <label class="check"><input type="checkbox" checked={failed === "1"} onChange={(e) => { location.hash = go({ failed: e.currentTarget.checked ? 1 : undefined }); }} /> failed only</label>
      </form>
      <div class="row-between">
        <Tabs label="Order" at={sort} of={sorts.map((name) => ({ name, href: go({ sort: name === "newest" ? undefined : name }) }))} />
        {rows.data && <span class="soft">{rows.data.total > 0 ? `${count(offset + 1)} to ${count(Math.min(rows.data.total, offset + rows.data.results.length))} of ${count(rows.data.total)}` : ""}</span>}
      </div>
      {(uid || outcome || epoch || reward !== undefined) && (
        <p class="note">Only {uid && `group ${uid} `}{outcome && `outcome ${outcome} `}{epoch && `epoch ${epoch} `}{reward !== undefined && `reward ${reward || "default"} `}<a href={go({ uid: undefined, outcome: undefined, epoch: undefined, reward: undefined })}>show all</a></p>
      )}
      <Shown of={rows} what="Samples">
        {(d) => d.results.length
          ? <Gallery rows={d.results} aside={(r) => sort === "slowest" ? ms(r.timing_ms.total) : `step ${r.step}`} />
          : <Empty>{Object.keys(query).length ? "No kept sample matches these filters." : "The store holds no sample yet."}</Empty>}
      </Shown>
      {rows.data && rows.data.total > page && (
        <nav class="turns pages" aria-label="Pages">
          {offset > 0 && <a href={go({ offset: Math.max(0, offset - page) || undefined })}>← previous</a>}
          {offset + page < rows.data.total && <a href={go({ offset: offset + page })}>next →</a>}
        </nav>
      )}
    </>
  );
}
