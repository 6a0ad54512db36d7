// Requests to the server: the token, deadlines, and errors that say what to do.

const tokenKey = "rewardloop.token";

let listeners: (() => void)[] = [];
let needed = false; // the last answer was 401

export class Refused extends Error {
  status: number;
  code: string;
  constructor(status: number, code: string, message: string) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

export function token(): string {
  try {
    return sessionStorage.getItem(tokenKey) ?? "";
  } catch {
    return "";
  }
}

export function setToken(value: string): void {
  try {
    if (value) sessionStorage.setItem(tokenKey, value);
    else sessionStorage.removeItem(tokenKey);
  } catch {
    // A browser that keeps nothing asks again.
  }
  ask(false);
}

export const tokenNeeded = () => needed;

export function onToken(f: () => void): () => void {
  listeners.push(f);
  return () => {
    listeners = listeners.filter((l) => l !== f);
  };
}

function ask(now: boolean): void {
  needed = now;
  for (const l of listeners) l();
}

// address is relative to the page, so that a proxy may serve it below a path of its own.
function address(path: string): URL {
  const url = new URL(path.replace(/^\/+/, ""), document.baseURI);
  url.hash = "";
  return url;
}

// deadline is how long an answer may take to begin, in ms.
const deadline = 20_000;

export async function request(path: string, accept: string, signal?: AbortSignal, patience = deadline): Promise<Response> {
  const headers: Record<string, string> = { Accept: accept };
  const secret = token();
  if (secret) headers.Authorization = "Bearer " + secret;
  const late = new AbortController();
  const timer = setTimeout(() => late.abort(), patience);
  const stop = () => late.abort();
  signal?.addEventListener("abort", stop);
  if (signal?.aborted) late.abort();
  try {
    const answer = await fetch(address(path), { headers, signal: late.signal, credentials: "same-origin", redirect: "error" });
    if (answer.ok) return answer;
    if (answer.status === 401) ask(true);
    let code = "", message = "";
    try {
      const body: unknown = await answer.json();
      if (typeof body === "object" && body !== null) {
        const said = body as { code?: unknown; error?: unknown };
        if (typeof said.code === "string") code = said.code;
        if (typeof said.error === "string") message = said.error;
      }
    } catch {
      // The status says enough.
    }
    throw new Refused(answer.status, code, message || `the server answered ${answer.status}`);
  } catch (err) {
    if (err instanceof Refused) throw err;
    if (signal?.aborted) throw err;
    if (late.signal.aborted) throw new Refused(0, "timeout", `the server gave no answer within ${patience / 1000} s`);
    throw new Refused(0, "unreachable", "the server cannot be reached");
  } finally {
    clearTimeout(timer);
  }
}

export async function get<T>(path: string, signal?: AbortSignal): Promise<T> {
  const answer = await request(path, "application/json", signal);
  return (await answer.json()) as T;
}

// stepPath is the API's path of a step.
export const stepPath = (run: string, step: number | string) => `/v1/runs/${encodeURIComponent(run)}/steps/${encodeURIComponent(String(step))}`;

// Pictures are fetched with the token, and kept as object URLs, the newest ones.
const keep = 400;
const pictures = new Map<string, Promise<string>>();
let busy = 0;
const queue: (() => void)[] = [];

async function turn(): Promise<void> {
  if (busy >= 8) await new Promise<void>((go) => queue.push(go));
  busy++;
}

function done(): void {
  busy--;
  queue.shift()?.();
}

async function load(path: string): Promise<string> {
  await turn();
  try {
    const answer = await request(path, "image/*");
    return URL.createObjectURL(await answer.blob());
  } finally {
    done();
  }
}

// picture gives an object URL of a picture of the API. Paths elsewhere are refused.
export function picture(path: string): Promise<string> {
  if (!path.startsWith("/v1/")) return Promise.reject(new Refused(0, "malformed", "the picture's address is not one of the API"));
  const known = pictures.get(path);
  if (known) {
    pictures.delete(path);
    pictures.set(path, known);
    return known;
  }
  const coming = load(path);
  pictures.set(path, coming);
  coming.catch(() => pictures.delete(path));
  for (const [old, url] of pictures) {
    if (pictures.size <= keep) break;
    pictures.delete(old);
    url.then((u) => URL.revokeObjectURL(u), () => undefined);
  }
  return coming;
}
