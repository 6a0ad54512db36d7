import { useEffect, useRef, useState } from "preact/hooks";
import { get, onToken, tokenNeeded } from "./api.ts";
import { current, onWritten, watch, type Live, type Written } from "./live.ts";
import { parse, type Route } from "./route.ts";

export function useLive(): Live {
  const [live, set] = useState(current());
  useEffect(() => {
    set(current());
    return watch(() => set(current()));
  }, []);
  return live;
}

export function useRoute(): Route {
  const [route, set] = useState(() => parse(location.hash));
  useEffect(() => {
    const change = () => set(parse(location.hash));
    addEventListener("hashchange", change);
    return () => removeEventListener("hashchange", change);
  }, []);
  return route;
}

export function useTokenNeeded(): boolean {
  const [needed, set] = useState(tokenNeeded());
  useEffect(() => onToken(() => set(tokenNeeded())), []);
  return needed;
}

// useWritten calls f when rows were written.
export function useWritten(f: (w: Written) => void): void {
  const latest = useRef(f);
  latest.current = f;
  useEffect(() => onWritten((w) => latest.current(w)), []);
}

export interface Loaded<T> { data: T | null; error: Error | null; loading: boolean; reload: () => void }

// useGet asks for a path, and again every `every` ms while the page is looked at. What was shown
// stays until the next answer. Null asks for nothing.
export function useGet<T>(path: string | null, every = 0): Loaded<T> {
  const [state, set] = useState<{ path: string | null; data: T | null; error: Error | null }>({ path: null, data: null, error: null });
  const again = useRef<() => void>(() => undefined);
  useEffect(() => {
    if (path === null) return;
    let over = false, asking = false, wanted = false;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const stop = new AbortController();
    const ask = async () => {
      if (asking) {
        wanted = true;
        return;
      }
      asking = true;
      clearTimeout(timer);
      try {
        const data = await get<T>(path, stop.signal);
        if (!over) set({ path, data, error: null });
      } catch (err) {
        if (!over) set((s) => ({ path, data: s.path === path ? s.data : null, error: err instanceof Error ? err : new Error(String(err)) }));
      }
      asking = false;
      if (over) return;
      if (wanted) {
        wanted = false;
        timer = setTimeout(() => void ask(), 400);
      } else if (every > 0) timer = setTimeout(() => void next(), every);
    };
    const next = () => (document.hidden || tokenNeeded() ? (timer = setTimeout(() => void next(), every)) : void ask());
    again.current = () => void ask();
    void ask();
    const off = onToken(() => {
      if (!tokenNeeded()) void ask();
    });
    return () => {
      over = true;
      stop.abort();
      clearTimeout(timer);
      off();
    };
  }, [path, every]);
  const mine = state.path === path;
  return { data: mine ? state.data : null, error: mine ? state.error : null, loading: path !== null && !mine, reload: () => again.current() };
}

// useWidth measures an element.
export function useWidth<T extends Element>(usual = 600) {
  const ref = useRef<T>(null);
  const [width, set] = useState(usual);
  useEffect(() => {
    const el = ref.current;
    if (!el) return;
    const look = () => set(Math.max(160, Math.floor(el.getBoundingClientRect().width)));
    look();
    const seen = new ResizeObserver(look);
    seen.observe(el);
    return () => seen.disconnect();
  }, []);
  return { ref, width };
}
