// Numbers, times and names as a person reads them. What is absent is an en dash, never a zero.
import type { Num } from "./types.ts";

export const none = "–";

export function has(v: Num): v is number {
  return typeof v === "number" && Number.isFinite(v);
}

// score keeps three digits that matter, so that what is small is not shown as zero.
export function score(v: Num): string {
  if (!has(v)) return none;
  const a = Math.abs(v) < 1e-12 ? 0 : Math.abs(v); // what rounding left of a zero
  if (a === 0) return "0.000";
  if ((a < 1e-3 || a >= 1e6)) return v.toExponential(1).replace("e+", "e").replace("-", "−");
  return v.toFixed(a >= 1000 ? 0 : a >= 100 ? 1 : a >= 10 ? 2 : 3).replace("-", "−");
}

export function count(v: Num): string {
  if (!has(v)) return none;
  return Math.round(v).toString().replace(/\B(?=(\d{3})+$)/g, "\u202f");
}

export function plural(n: Num, one: string, many = one + "s"): string {
  return `${count(n)} ${n === 1 ? one : many}`;
}

// seconds: 0.4 ms, 34 ms, 1.2 s, 23 s, 4 min 10 s, 2 h 3 min.
export function seconds(v: Num): string {
  if (!has(v)) return none;
  if (v < 0) return "−" + seconds(-v);
  if (v === 0) return "0 s";
  if (v < 0.00995) return (v * 1000).toFixed(1) + " ms";
  if (v < 0.9995) return Math.round(v * 1000) + " ms";
  if (v < 9.95) return v.toFixed(1) + " s";
  if (v < 120) return Math.round(v) + " s";
  if (v < 7200) return Math.floor(v / 60) + " min" + (Math.round(v % 60) % 60 ? ` ${Math.round(v % 60) % 60} s` : "");
  if (v < 172800) return Math.floor(v / 3600) + " h" + (Math.floor((v % 3600) / 60) ? ` ${Math.floor((v % 3600) / 60)} min` : "");
  return Math.round(v / 86400) + " days";
}

export function ms(v: Num): string {
  return has(v) ? seconds(v / 1000) : none;
}

export function share(v: Num): string {
  if (!has(v)) return none;
  const p = v * 100;
  if (p === 0 || p >= 9.95) return Math.round(p) + " %";
  return (p < 0.1 ? "< 0.1" : p.toFixed(1)) + " %";
}

export function bytes(v: Num): string {
  if (!has(v)) return none;
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let i = 0;
  for (; v >= 1024 && i < units.length - 1; i++) v /= 1024;
  return (i === 0 ? String(v) : v.toFixed(v < 10 ? 1 : 0)) + " " + units[i];
}

export function perSecond(v: Num): string {
  return has(v) ? (v >= 100 ? Math.round(v) : v.toFixed(1)) + " / s" : none;
}

const pad = (n: number) => String(n).padStart(2, "0");

// clock is the local time of day, with the date where it is not today's.
export function clock(text: string | undefined, now = new Date()): string {
  const t = new Date(text ?? "");
  if (Number.isNaN(t.getTime()) || t.getFullYear() < 1971) return none;
  const time = `${pad(t.getHours())}:${pad(t.getMinutes())}:${pad(t.getSeconds())}`;
  return t.toDateString() === now.toDateString() ? time : `${t.getFullYear()}-${pad(t.getMonth() + 1)}-${pad(t.getDate())} ${time}`;
}

// ago is how long ago something was.
export function ago(text: string | undefined, now = Date.now()): string {
  const t = new Date(text ?? "").getTime();
  if (Number.isNaN(t) || t < 1e10) return none;
  const s = Math.max(0, (now - t) / 1000);
  return s < 1 ? "now" : seconds(Math.round(s)) + " ago";
}

// middle cuts a long name where ids differ least.
export function middle(text: string, most = 36): string {
  const letters = Array.from(text);
  if (letters.length <= most) return text;
  return letters.slice(0, Math.ceil(most / 2)).join("") + "…" + letters.slice(letters.length - Math.floor(most / 2) + 1).join("");
}

export function cut(text: string, most: number): string {
  const letters = Array.from(text.slice(0, most * 2 + 2));
  return letters.length <= most ? text : letters.slice(0, most - 1).join("") + "…";
}

// ticks are up to about n round numbers that span lo to hi.
export function ticks(lo: number, hi: number, n: number): number[] {
  if (!(hi > lo)) return [lo];
  const raw = (hi - lo) / Math.max(1, n);
  const ten = 10 ** Math.floor(Math.log10(raw));
  const step = ten * ([1, 2, 5, 10].find((m) => m * ten >= raw * 0.999) ?? 10);
  const list: number[] = [];
  for (let i = Math.ceil(lo / step - 1e-9); i * step <= hi + step * 1e-9 && list.length < 50; i++) list.push(i * step + 0); // + 0: no minus before a zero
  return list.length ? list : [lo];
}

// fewTicks are round numbers within lo and hi, two or more where there is room for them.
export function fewTicks(lo: number, hi: number, n: number, whole = false): number[] {
  for (let k = n; ; k++) {
    const list = ticks(lo, hi, k).filter((t) => t >= lo && t <= hi && (!whole || Number.isInteger(t)));
    if (list.length >= 2 || k >= n + 4) return list.length > 4 ? list.filter((_, i) => i % 2 === 0) : list;
  }
}

// short is a number of an axis.
export function short(v: number): string {
  const a = Math.abs(v);
  if (a >= 1e4) return (v / 1e3).toFixed(0) + "k";
  if (a !== 0 && a < 1e-3) return v.toExponential(0).replace("-", "−");
  return String(Number(v.toPrecision(3))).replace("-", "−");
}
