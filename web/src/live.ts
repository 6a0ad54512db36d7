// The state that changes by itself: /v1/events as long as it comes, and /v1/overview every two
// seconds while it does not.
import { get, onToken, Refused, request, tokenNeeded } from "./api.ts";
import type { Overview } from "./types.ts";

export interface Written { keys: (number | string)[]; run: string; step: number }
export type Link = "connecting" | "live" | "polling" | "lost";

export interface Live { overview: Overview | null; link: Link; error: string; at: number }

let state: Live = { overview: null, link: "connecting", error: "", at: 0 };
let watchers: (() => void)[] = [];
let writers: ((w: Written) => void)[] = [];

export const current = (): Live => state;

function set(next: Partial<Live>): void {
  state = { ...state, ...next };
  for (const w of watchers) w();
}

export function watch(f: () => void): () => void {
  watchers.push(f);
  return () => {
    watchers = watchers.filter((w) => w !== f);
  };
}

// onWritten is told of rows that were written to the store.
export function onWritten(f: (w: Written) => void): () => void {
  writers.push(f);
  return () => {
    writers = writers.filter((w) => w !== f);
  };
}

// Parser cuts a stream of Server-Sent Events into events.
export class Parser {
  private rest = "";
  private name = "";
  private data: string[] = [];

  // longest bounds what is kept of an event that never ends.
  static readonly longest = 8 << 20;

  push(text: string, each: (name: string, data: string) => void): void {
    this.rest += text;
    for (;;) {
      const end = /\r\n|\n|\r(?!$)/.exec(this.rest);
      if (!end) break;
      const line = this.rest.slice(0, end.index);
      this.rest = this.rest.slice(end.index + end[0].length);
      this.line(line, each);
    }
    if (this.rest.length > Parser.longest || this.data.reduce((n, d) => n + d.length, 0) > Parser.longest) {
      throw new Error("an event of the server is too long");
    }
  }

  private line(line: string, each: (name: string, data: string) => void): void {
    if (line === "") {
      if (this.data.length) each(this.name || "message", this.data.join("\n"));
      this.name = "";
      this.data = [];
      return;
    }
    const at = line.indexOf(":");
    const field = at < 0 ? line : line.slice(0, at);
    const value = at < 0 ? "" : line.slice(at + 1).replace(/^ /, "");
    if (field === "event") this.name = value;
    if (field === "data") this.data.push(value);
  }
}

function said(name: string, data: string): void {
  let body: unknown;
  try {
    body = JSON.parse(data);
  } catch {
    return; // one that cannot be read is followed by others
  }
  if (typeof body !== "object" || body === null) return;
  if (name === "overview") set({ overview: body as Overview, link: "live", error: "", at: Date.now() });
  if (name === "results") for (const w of writers) w(body as Written);
}

// silence is how long a stream may say nothing: the server writes a comment every 15 s.
const silence = 40_000;

async function stream(signal: AbortSignal): Promise<void> {
  const stop = new AbortController();
  const end = () => stop.abort();
  signal.addEventListener("abort", end);
  let timer = setTimeout(end, silence);
  try {
    const answer = await request("/v1/events", "text/event-stream", stop.signal);
    if (!answer.body || !(answer.headers.get("Content-Type") ?? "").startsWith("text/event-stream")) {
      throw new Refused(404, "not_found", "the server sends no events");
    }
    const parser = new Parser();
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    try {
      for (;;) {
        const { done, value } = await reader.read();
        if (done) return;
        clearTimeout(timer);
        timer = setTimeout(end, silence);
        parser.push(value, said);
      }
    } finally {
      void reader.cancel().catch(() => undefined);
    }
  } finally {
    clearTimeout(timer);
    signal.removeEventListener("abort", end);
    stop.abort();
  }
}

const sleep = (ms: number, signal: AbortSignal) =>
  new Promise<void>((go) => {
    const timer = setTimeout(go, ms);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      go();
    });
  });

// reading tries to read events until the page ends, and waits longer after each failure.
async function reading(signal: AbortSignal): Promise<void> {
  let wait = 500;
  while (!signal.aborted) {
    if (tokenNeeded()) {
      await sleep(1000, signal);
      continue;
    }
    const begun = Date.now();
    let missing = false;
    try {
      await stream(signal);
    } catch (err) {
      missing = err instanceof Refused && (err.status === 404 || err.status === 405 || err.status === 501);
    }
    if (signal.aborted) return;
    if (state.link === "live") set({ link: "connecting" });
    if (Date.now() - begun > 10_000) wait = 500;
    await sleep(missing ? 60_000 : wait * (0.75 + Math.random() / 2), signal);
    wait = Math.min(wait * 2, 15_000);
  }
}

// polling asks while no event comes.
async function polling(signal: AbortSignal): Promise<void> {
  await sleep(700, signal);
  while (!signal.aborted) {
    if (current().link !== "live" && !tokenNeeded()) {
      try {
        const overview = await get<Overview>("/v1/overview", signal);
        if (current().link !== "live") set({ overview, link: "polling", error: "", at: Date.now() });
      } catch (err) {
        if (!signal.aborted && current().link !== "live") set({ link: "lost", error: err instanceof Error ? err.message : String(err) });
      }
    }
    await sleep(2000, signal);
  }
}

let running: AbortController | null = null;

function begin(): void {
  running?.abort();
  running = new AbortController();
  void reading(running.signal);
  void polling(running.signal);
}

export function start(): void {
  let asked = tokenNeeded();
  onToken(() => {
    if (asked && !tokenNeeded()) begin(); // a token was given
    asked = tokenNeeded();
  });
  begin();
}
