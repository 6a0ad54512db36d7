// What several views are made of. Text of strangers becomes text nodes and attributes, never HTML.
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { picture, Refused } from "./api.ts";
import { cut, has, middle, score } from "./format.ts";
import { safe, sampleLink } from "./route.ts";
import type { Media, Num, Row, StatusLine } from "./types.ts";

export function Id({ text, most = 36 }: { text: string; most?: number }) {
  return <code class="id" title={text}>{text === "" ? "(no name)" : middle(text, most)}</code>;
}

// Long is text that may be longer than its place: it scrolls, and keys reach it then.
export function Long({ text, cls }: { text: string; cls: string }) {
  const ref = useRef<HTMLParagraphElement>(null);
  const [over, setOver] = useState(false);
  useEffect(() => {
    const el = ref.current;
    if (!el) return;
    const look = () => setOver(el.scrollHeight > el.clientHeight + 1);
    look();
    const seen = new ResizeObserver(look);
    seen.observe(el);
    return () => seen.disconnect();
  }, [text]);
  return <p ref={ref} class={cls} tabIndex={over ? 0 : undefined} role={over ? "group" : undefined} aria-label={over ? "long text" : undefined}>{text}</p>;
}

export function Section({ title, aside, children, id }: { title: ComponentChildren; aside?: ComponentChildren; children: ComponentChildren; id?: string }) {
  return (
    <section class="section" id={id}>
      <div class="section-head">
        <h2>{title}</h2>
        {aside !== undefined && <div class="aside">{aside}</div>}
      </div>
      {children}
    </section>
  );
}

export function Empty({ children }: { children: ComponentChildren }) {
  return <p class="empty">{children}</p>;
}

// Trouble says why something cannot be shown.
export function Trouble({ error, what }: { error: Error; what: string }) {
  const absent = error instanceof Refused && error.status === 404;
  return (
    <p class={absent ? "empty" : "trouble"} role={absent ? undefined : "alert"}>
      {what} cannot be shown: {error.message}
    </p>
  );
}

// Shown holds back its children until there is data.
export function Shown<T>({ of, what, children }: { of: { data: T | null; error: Error | null; loading: boolean }; what: string; children: (data: T) => ComponentChildren }) {
  if (of.data !== null) {
    return (
      <>
        {of.error && <Trouble error={of.error} what={`What is new of ${what.charAt(0).toLowerCase()}${what.slice(1)}`} />}
        {children(of.data)}
      </>
    );
  }
  if (of.error) return <Trouble error={of.error} what={what} />;
  return <p class="empty" aria-busy="true">Loading…</p>;
}

export function Fact({ name, children, tone, href, wide }: { name: string; children: ComponentChildren; tone?: string; href?: string; wide?: boolean }) {
  return (
    <div class={"fact" + (wide ? " wide" : "")}>
      <dt>{name}</dt>
      <dd class={tone}>{href ? <a href={href}>{children}</a> : children}</dd>
    </div>
  );
}

export function StatusLines({ lines }: { lines: StatusLine[] }) {
  return (
    <ul class="status">
      {lines.map((l, i) => {
        const link = safe(l.link);
        const level = l.level === "ok" || l.level === "bad" ? l.level : "wait";
        return (
          <li key={i} class={"level-" + level}>
            <span class="mark" aria-label={{ ok: "well", wait: "waiting", bad: "failing" }[level]} role="img" />
            <span class="say">{link ? <a href={link}>{l.text}</a> : l.text}</span>
          </li>
        );
      })}
    </ul>
  );
}

export function Outcome({ of }: { of: string }) {
  return <span class={"outcome " + (of === "scored" ? "good" : of === "" ? "dim" : "bad")}>{of || "no result yet"}</span>;
}

// tint is the class of a column's colour: the same for a name within a view.
export function tint(names: string[], name: string): string {
  const at = names.indexOf(name);
  return at < 0 ? "c0" : "c" + ((at % 6) + 1);
}

// Bars are a sample's components, each within the range that the others on the page have.
export type Range = Record<string, [number, number]>;

export function rangeOf(rows: { components: Record<string, Num> }[]): Range {
  const range: Range = {};
  for (const row of rows) {
    for (const [k, v] of Object.entries(row.components)) {
      if (!has(v)) continue;
      const r = (range[k] ??= [0, 1]);
      r[0] = Math.min(r[0], v);
      r[1] = Math.max(r[1], v);
    }
  }
  return range;
}

export function Bars({ row, names, range, failed }: { row: { components: Record<string, Num> }; names: string[]; range: Range; failed?: string }) {
  const own = names.filter((name) => Object.hasOwn(row.components, name));
  if (own.length === 0) return null;
  return (
    <dl class="bars">
      {own.map((name) => {
        const v = row.components[name];
        const [lo, hi] = range[name] ?? [0, 1];
        const zero = Math.max(0, Math.min(1, (0 - lo) / (hi - lo)));
        const at = has(v) ? (v - lo) / (hi - lo) : 0;
        return (
          <div class={"bar " + tint(names, name)} key={name}>
            <dt title={name}>{name}</dt>
            <dd class="bar-of">
              <svg class="bar-line" viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true">
                <rect class="track" width="100" height="6" />
                {has(v) && <rect class="fill" x={Math.min(zero, at) * 100} width={Math.max(0.8, Math.abs(at - zero) * 100)} height="6" />}
              </svg>
              <span class={"bar-value" + (has(v) ? "" : failed === name ? " bad" : " dim")}>{has(v) ? score(v) : failed === name ? "failed" : score(null)}</span>
            </dd>
          </div>
        );
      })}
    </dl>
  );
}

// Picture shows a picture of the API once it is near the screen.
export function Picture({ path, alt, width, height, children }: { path: string | null; alt: string; width?: number; height?: number; children?: ComponentChildren }) {
  const box = useRef<HTMLDivElement>(null);
  const [near, setNear] = useState(false);
  const [url, setURL] = useState("");
  const [why, setWhy] = useState("");
  useEffect(() => {
    const el = box.current;
    if (!el || near) return;
    const seen = new IntersectionObserver((list) => {
      if (list.some((e) => e.isIntersecting)) setNear(true);
    }, { rootMargin: "300px" });
    seen.observe(el);
    return () => seen.disconnect();
  }, [near]);
  useEffect(() => {
    if (!near || path === null) return;
    let over = false;
    setWhy("");
    picture(path).then(
      (u) => {
        if (!over) setURL(u);
      },
      (err: unknown) => {
        if (over) return;
        setURL("");
        setWhy(err instanceof Refused && err.status === 404 ? "not kept" : "cannot be loaded");
      },
    );
    return () => {
      over = true;
    };
  }, [near, path]);
  const shape = width && height ? { aspectRatio: `${width} / ${height}` } : {};
  return (
    <div class={"picture" + (url ? "" : " blank")} ref={box} style={shape}>
      {url && path !== null ? <img src={url} alt={alt} decoding="async" /> : <span>{path === null ? "no picture is kept" : why ? `picture ${why}` : ""}</span>}
      {url && children}
    </div>
  );
}

export function altOf(row: { prompt: string; score: Num; id: string }): string {
  return cut(row.prompt || row.id, 90) + (has(row.score) ? `, reward ${score(row.score)}` : ", without a reward");
}

function firstMedia(row: Row): Media | undefined {
  return row.media.find((m) => m.thumbnail) ?? row.media[0];
}

// Card is a sample in a gallery.
export function Card({ row, names, range, aside }: { row: Row; names: string[]; range: Range; aside?: ComponentChildren }) {
  const media = firstMedia(row);
  const more = row.media.length - 1;
  return (
    <li class={"card" + (row.outcome === "scored" ? "" : " is-failed")}>
      <a href={sampleLink(row.key)} class="card-link" data-nav>
        {media && <span class="unseen">{altOf(row)}</span>}
        {media && media.kind !== "audio" ? (
          <div class={"thumb" + (media.frames > 1 ? " film" : "")}>
            <Picture path={frameOf(media, 0)} alt="" width={media.width || 1} height={media.height || 1} />
            {media.frames > 1 && <span class="badge">{media.frames} frames</span>}
            {more > 0 && <span class="badge left">+{more}</span>}
          </div>
        ) : (
          <div class="thumb answer"><p>{row.response || row.prompt || row.id}</p></div>
        )}
      </a>
      <div class="card-head">
        {(has(row.score) || row.outcome === "scored") && <b class="reward">{score(row.score)}</b>}
        {row.outcome !== "scored" && <Outcome of={row.outcome} />}
        <span class="aside">{aside}</span>
      </div>
      {row.error && <p class="why" title={row.error.message}>{row.error.component ? row.error.component + ": " : ""}{row.error.message}</p>}
      {row.fallback && <p class="why soft">fallback {row.fallback.policy}: {score(row.fallback.value)}</p>}
      <Bars row={row} names={names} range={range} failed={row.error?.component} />
      <p class="prompt" title={cut(row.prompt, 500)}>{row.prompt || row.id}</p>
    </li>
  );
}

// frameOf is the thumbnail of one frame; a picture has one.
export function frameOf(media: Media, frame: number): string | null {
  if (!media.thumbnail) return null;
  return media.kind === "video" ? media.thumbnail + (media.thumbnail.includes("?") ? "&" : "?") + "frame=" + frame : media.thumbnail;
}

export function namesOf(rows: { components: Record<string, unknown> }[]): string[] {
  const names = new Set<string>();
  for (const r of rows) for (const k of Object.keys(r.components)) names.add(k);
  return [...names].sort();
}

export function Gallery({ rows, aside }: { rows: Row[]; aside?: (row: Row) => ComponentChildren }) {
  const names = namesOf(rows);
  const range = rangeOf(rows);
  useEffect(() => {
    remember(rows.map((r) => r.key));
  }, [rows]);
  return (
    <ul class="gallery">
      {rows.map((r) => <Card key={r.key} row={r} names={names} range={range} aside={aside?.(r)} />)}
    </ul>
  );
}

// The samples of the gallery that was looked at last: j and k go through them.
let remembered: (number | string)[] = [];

export function remember(keys: (number | string)[]): void {
  remembered = keys;
}

export const recalled = () => remembered;

export function Tabs({ of, at, label }: { of: { name: string; href: string; count?: number; tone?: string }[]; at: string; label: string }) {
  return (
    <nav class="tabs" aria-label={label}>
      {of.map((t) => (
        <a key={t.name} href={t.href} aria-current={t.name === at ? "true" : undefined}>
          {t.name}
          {t.count !== undefined && <span class={"tab-count " + (t.tone ?? "")}>{t.count}</span>}
        </a>
      ))}
    </nav>
  );
}

// Scroll holds a table that may be wider than the screen.
export function Scroll({ children, label }: { children: ComponentChildren; label: string }) {
  return <div class="scroll" tabIndex={0} role="region" aria-label={label}>{children}</div>;
}

export function usePageTitle(title: string): void {
  useEffect(() => {
    document.title = title === "" ? "rewardloop" : `${cut(title, 60)} – rewardloop`;
  }, [title]);
}
