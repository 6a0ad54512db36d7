import { stepPath } from "../api.ts";
import { Dots } from "../charts.tsx";
import { has, plural, score } from "../format.ts";
import { useGet, useWritten } from "../hooks.ts";
import { groupLink, queryOf, runLink, stepLink } from "../route.ts";
import type { Group, Results } from "../types.ts";
import { Empty, Gallery, Id, Long, Shown, usePageTitle } from "../ui.tsx";

export function GroupView({ run, step, uid, query }: { run: string; step: string; uid: string; query: Record<string, string> }) {
  usePageTitle(`Group ${uid}`);
  const split = query.split ?? "train", epoch = query.epoch;
  const rows = useGet<Results>(`/v1/results${queryOf({ run, step, split, epoch, uid, sort: "best", limit: 256 })}`);
  const groups = useGet<{ groups: Group[] }>(`${stepPath(run, step)}/groups${queryOf({ split, epoch, sort: "step", limit: 1000 })}`);
  useWritten((w) => {
    if (w.run === run && String(w.step) === step) for (const one of [rows, groups]) one.reload();
  });
  const list = groups.data?.groups ?? [];
  const at = list.findIndex((g) => g.uid === uid);
  const group = list[at];
  const link = (g: Group) => groupLink(run, Number(step), g.uid, split, epoch);
  const prompt = rows.data?.results[0]?.prompt || group?.prompt;
  const scores = rows.data?.results.flatMap((r) => (has(r.score) ? [r.score] : [])) ?? [];
  return (
    <>
      <p class="crumbs"><a href="#/">Overview</a> <a href={runLink(run, split)}>Run <Id text={run} /></a> <a href={stepLink(run, Number(step), split, epoch)} data-up>Step {step}</a></p>
      <div class="title-row">
        <h1>Group <Id text={uid} most={44} /></h1>
        <nav class="turns" aria-label="Groups">
          {at > 0 && <a href={link(list[at - 1]!)}>← previous</a>}
          {at >= 0 && list[at + 1] && <a href={link(list[at + 1]!)}>next →</a>}
        </nav>
      </div>
      {prompt && <Long cls="prompt-whole" text={prompt} />}
      {group && (
        <>
          <p class="lead">
            {plural(group.members.length, "sample")}{group.members.length < group.size ? ` of ${group.size}` : ""}, reward {score(group.mean)} ± {score(group.std)}
            {group.zero_std && <>. <span class="wait">All rewards are the same, so the group teaches nothing.</span></>}
          </p>
          <Dots groups={[{ ...group, prompt: "rewards of the group" }]} lo={Math.min(0, ...scores)} hi={Math.max(1, ...scores)} href={link} />
        </>
      )}
      <Shown of={rows} what="The group">
        {(d) => d.results.length ? <Gallery rows={d.results} aside={(r) => (has(r.index) ? `index ${r.index}` : "")} /> : <Empty>The store holds no sample of this group.</Empty>}
      </Shown>
    </>
  );
}
