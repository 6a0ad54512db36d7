// Routes are in the hash, so that a link can be shared and the server need not know them:
//
//   #/                                     overview
//   #/run/RUN                              a run over its steps
//   #/run/RUN/step/N?split=&epoch=         a step
//   #/run/RUN/step/N/group/UID?split=      a prompt group
//   #/samples?run=&step=&sort=&failed=1…   samples, with the query of /v1/results
//   #/sample/KEY                           a sample
//   #/find?run=&step=&split=&id=           the sample with this id
//   #/failures #/engines #/workers #/compare #/pending #/hints
//
// The words of the API (runs, steps, groups, results) are understood as well.

export interface Route { path: string[]; query: Record<string, string> }

const same: Record<string, string> = { runs: "run", steps: "step", groups: "group", results: "samples" };

function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

export function parse(hash: string): Route {
  const [before = "", after = ""] = hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  const path = before.split("/").filter((p) => p !== "").map(decode);
  for (const at of [0, 2, 4]) {
    const word = path[at];
    if (word !== undefined && (at === 0 || path[0] === "run")) path[at] = Object.hasOwn(same, word) ? same[word]! : word;
  }
  if (path[0] === "run" && path.length === 1) path.length = 0;
  if (path[0] === "samples" && path.length === 2) path[0] = "sample";
  const query: Record<string, string> = {};
  for (const [k, v] of new URLSearchParams(after)) query[k] = v;
  return { path, query };
}

export type Query = Record<string, string | number | null | undefined>;

export function queryOf(query: Query): string {
  const q = new URLSearchParams();
  for (const [k, v] of Object.entries(query)) if (v !== undefined && v !== null && v !== "") q.set(k, String(v));
  const text = q.toString();
  return text ? "?" + text : "";
}

export function to(path: (string | number)[], query: Query = {}): string {
  return "#/" + path.map((p) => encodeURIComponent(String(p))).join("/") + queryOf(query);
}

// train is the split that links leave out.
const splitOf = (split: string | undefined) => (split === "train" ? undefined : split);

export const runLink = (run: string, split?: string) => to(["run", run], { split: splitOf(split) });
export const stepLink = (run: string, step: number, split?: string, epoch?: string) => to(["run", run, "step", step], { split: splitOf(split), epoch });
export const groupLink = (run: string, step: number, uid: string, split?: string, epoch?: string) =>
  to(["run", run, "step", step, "group", uid], { split: splitOf(split), epoch });
export const sampleLink = (key: number | string) => to(["sample", key]);

// safe is a link of the server's, which must lead into this page; else undefined.
export function safe(link: string | undefined | null): string | undefined {
  return typeof link === "string" && link.startsWith("#/") ? link : undefined;
}
