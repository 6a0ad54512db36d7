// The frame around the views: links, state of the connection, keys, help, the token.
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { setToken, token } from "./api.ts";
import { ago } from "./format.ts";
import { useLive, useRoute, useTokenNeeded } from "./hooks.ts";
import type { Route } from "./route.ts";
import { Empty, usePageTitle } from "./ui.tsx";
import { Overview } from "./views/overview.tsx";
import { RunView } from "./views/run.tsx";
import { StepView } from "./views/step.tsx";
import { GroupView } from "./views/group.tsx";
import { Find, SampleView } from "./views/sample.tsx";
import { Samples } from "./views/samples.tsx";
import { FailuresView } from "./views/failures.tsx";
import { Engines, PendingView, WorkersView } from "./views/machines.tsx";
import { Compare } from "./views/compare.tsx";
import { Hints } from "./views/hints.tsx";

// pages are the views that the head links to, each with the key that follows g.
const pages: [name: string, href: string, key: string][] = [
  ["Overview", "#/", "o"],
  ["Samples", "#/samples", "s"],
  ["Failures", "#/failures", "f"],
  ["Hints", "#/hints", "h"],
  ["Compare", "#/compare", "c"],
  ["Pending", "#/pending", "p"],
  ["Workers", "#/workers", "w"],
  ["Engines", "#/engines", "e"],
];

function view({ path, query }: Route): ComponentChildren {
  const key = path.join("\u0000");
  switch (path[0]) {
    case undefined: return <Overview />;
    case "run":
      if (path[2] === "step" && path[3] !== undefined) {
        if (path[4] === "group" && path[5] !== undefined) return <GroupView key={key} run={path[1]!} step={path[3]} uid={path[5]} query={query} />;
        return <StepView key={path[1]} run={path[1]!} step={path[3]} query={query} />;
      }
      return <RunView key={key} run={path[1]!} query={query} />;
    case "sample": return <SampleView id={path[1] ?? ""} />;
    case "samples": return <Samples query={query} />;
    case "find": return <Find query={query} />;
    case "failures": return <FailuresView query={query} />;
    case "engines": return <Engines />;
    case "workers": return <WorkersView />;
    case "compare": return <Compare query={query} />;
    case "pending": return <PendingView />;
    case "hints": return <Hints query={query} />;
  }
  return <Missing />;
}

function Missing() {
  usePageTitle("No such view");
  return <><h1>No such view</h1><Empty>This address is not a view of the page. <a href="#/">The overview</a> links to all views.</Empty></>;
}

// place is which link of the head a view belongs to.
function place(path: string[]): string {
  const at = path[0] ?? "";
  if (at === "sample" || at === "find") return "#/samples";
  if (at === "run") return "#/";
  return "#/" + at;
}

const editing = (el: EventTarget | null) => el instanceof HTMLElement && (el.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(el.tagName));

// step moves the focus through what a view offers: cards, groups, rows.
function step(by: number): void {
  const all = [...document.querySelectorAll<HTMLElement>("main [data-nav]")].filter((el) => el.offsetParent !== null);
  if (all.length === 0) return;
  const at = all.indexOf(document.activeElement as HTMLElement);
  const next = all[Math.max(0, Math.min(all.length - 1, at < 0 ? (by > 0 ? 0 : all.length - 1) : at + by))]!;
  next.focus();
  next.scrollIntoView({ block: "nearest" });
}

// across moves the focus one row of cards up or down.
function across(by: number): boolean {
  const here = document.activeElement;
  if (!(here instanceof HTMLElement) || !here.closest(".gallery")) return false;
  const from = here.getBoundingClientRect();
  let best: HTMLElement | null = null, near = Infinity;
  for (const el of document.querySelectorAll<HTMLElement>("main .gallery [data-nav]")) {
    const to = el.getBoundingClientRect();
    const down = (to.top - from.top) * by;
    if (down < 10) continue;
    const far = down * 4 + Math.abs(to.left - from.left);
    if (far < near) [best, near] = [el, far];
  }
  best?.focus();
  best?.scrollIntoView({ block: "nearest" });
  return best !== null;
}

function useKeys(help: () => void): void {
  useEffect(() => {
    let g = 0; // when g was pressed
    const press = (event: KeyboardEvent) => {
      if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || editing(event.target) || document.querySelector("dialog[open]")) return;
      const went = g;
      g = 0;
      if (Date.now() - went < 1500) {
        const page = pages.find(([, , key]) => key === event.key);
        if (page) {
          location.hash = page[1];
          event.preventDefault();
          return;
        }
      }
      const turn = { j: "next", k: "previous", ArrowRight: "next", ArrowLeft: "previous" }[event.key];
      const turner = turn && document.querySelector<HTMLAnchorElement>(`main a[data-turn="${turn}"]`);
      if (event.key === "g") g = Date.now();
      else if (event.key === "?") help();
      else if (event.key === "/") {
        const field = document.querySelector<HTMLInputElement>("main input[type=search]");
        if (!field) return;
        field.focus();
      } else if (event.key === "u") document.querySelector<HTMLAnchorElement>("main a[data-up]")?.click();
      else if (turner) turner.click();
      else if (document.querySelector("main [data-turn]") && turn) return;
      else if (event.key === "j" || (event.key === "ArrowRight" && inGallery())) step(1);
      else if (event.key === "k" || (event.key === "ArrowLeft" && inGallery())) step(-1);
      else if (event.key === "ArrowDown" && across(1)) event.preventDefault();
      else if (event.key === "ArrowUp" && across(-1)) event.preventDefault();
      else return;
      if (event.key !== "g") event.preventDefault();
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, []);
}

const inGallery = () => document.activeElement?.closest(".gallery") !== null && document.activeElement?.closest(".gallery") !== undefined;

function Help({ open, close }: { open: boolean; close: () => void }) {
  const ref = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const el = ref.current;
    if (open && el && !el.open) el.showModal();
    if (!open && el?.open) el.close();
  }, [open]);
  const keys: [string, string][] = [
    ...pages.map(([name, , key]): [string, string] => ["g " + key, "go to " + name]),
    ["j k", "the next or previous sample, group or row; on a sample: of the gallery it was opened from"],
    ["← → ↑ ↓", "the same in a gallery; in a drawing: move the cursor"],
    ["Enter", "open what has the focus"],
    ["u", "up: from a sample to its group, from a group to its step, from a step to its run"],
    ["/", "search, among samples"],
    ["?", "this list"],
  ];
  return (
    <dialog ref={ref} onClose={close} aria-labelledby="help-title">
      <h2 id="help-title">Keys</h2>
      <dl class="keys">{keys.map(([k, what]) => <div key={k}><dt>{k.split(" ").map((one) => <kbd key={one}>{one}</kbd>)}</dt><dd>{what}</dd></div>)}</dl>
      <p class="soft">Every view has an address of its own that can be shared. <a href="?plain">The state as plain tables</a> needs no scripts.</p>
      <button type="button" onClick={close}>Close</button>
    </dialog>
  );
}

function TokenForm() {
  const [wrong] = useState(token() !== "");
  usePageTitle("Token");
  return (
    <main class="token" id="main" tabIndex={-1}>
      <h1>This server needs a token</h1>
      <p>{wrong ? "The server does not accept this token: it is unknown, revoked or expired." : "Use a token of the server's token_file."} This tab keeps the token until the tab is closed.</p>
      <form onSubmit={(e) => {
        e.preventDefault();
        const field = e.currentTarget.elements.namedItem("token");
        if (field instanceof HTMLInputElement && field.value.trim()) setToken(field.value.trim());
      }}>
        <label for="token">Token</label>
        <input id="token" name="token" type="password" autocomplete="off" spellcheck={false} required autofocus />
        <button type="submit">Show the state</button>
      </form>
    </main>
  );
}

function Connection() {
  const { link, overview, error, at } = useLive();
  const [, tick] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => tick((n) => n + 1), 1000);
    return () => clearInterval(timer);
  }, []);
  const say = { live: "live", polling: "every 2 s", connecting: "connecting", lost: "no connection" }[link];
  const stale = link === "lost" && at > 0 ? `, as of ${ago(new Date(at).toISOString())}` : "";
  return (
    <span class="connection">
      {overview && (overview.ready ? <span class="pill good">ready</span> : <span class="pill bad">not ready</span>)}
      <span class={"link link-" + link} title={error || overview?.version || ""} role="status">{say}{stale}</span>
    </span>
  );
}

export function App() {
  const route = useRoute();
  const needed = useTokenNeeded();
  const [help, setHelp] = useState(false);
  const first = useRef(true);
  const where = route.path.join("/");
  useKeys(() => setHelp(true));
  useEffect(() => {
    if (!first.current) {
      scrollTo(0, 0);
      if (document.activeElement === document.body) document.getElementById("main")?.focus({ preventScroll: true });
    }
    first.current = false;
  }, [where]);
  const at = place(route.path);
  return (
    <>
      <a class="skip" href="#main" onClick={(e) => { e.preventDefault(); document.getElementById("main")?.focus(); }}>Skip to the content</a>
      <header class="head">
        <a class="brand" href="#/">rewardloop</a>
        <nav aria-label="Views">
          {pages.map(([name, href]) => <a key={href} href={href} aria-current={href === at ? "page" : undefined}>{name}</a>)}
        </nav>
        <Connection />
        <button type="button" class="plain" aria-label="Keys and help" title="Keys and help" onClick={() => setHelp(true)}>?</button>
      </header>
      {needed ? <TokenForm key="token" /> : <main id="main" tabIndex={-1}>{view(route)}</main>}
      <Help open={help} close={() => setHelp(false)} />
    </>
  );
}
