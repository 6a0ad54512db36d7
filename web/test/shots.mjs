// shots.mjs FOLDER takes pictures of every view at two widths, of some in the dark.
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { chromium } from "playwright-core";
import { mock } from "./mock.mjs";
import { settle, viewsOf } from "./views.mjs";

const into = process.argv[2] ?? "out/web";
mkdirSync(into, { recursive: true });
const own = process.env.REWARDLOOP_WEB_URL ? null : await mock({ beat: 3_600_000 });
const base = process.env.REWARDLOOP_WEB_URL ?? own.url;
const views = await viewsOf(base, process.env.REWARDLOOP_WEB_TOKEN);
const only = process.env.VIEWS?.split(",");
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM, args: process.getuid?.() === 0 ? ["--no-sandbox"] : [] });
for (const [width, height, scheme] of [[1440, 900, "light"], [390, 844, "light"], [1440, 900, "dark"]]) {
  const page = await browser.newPage({ viewport: { width, height }, colorScheme: scheme, reducedMotion: "reduce" });
  if (process.env.REWARDLOOP_WEB_TOKEN) await page.addInitScript((t) => sessionStorage.setItem("rewardloop.token", t), process.env.REWARDLOOP_WEB_TOKEN);
  for (const [name, hash] of views) {
    if (only && !only.includes(name)) continue;
    if (scheme === "dark" && !["overview", "step-0", "sample-0", "compare", "failed-0"].includes(name)) continue;
    await page.goto(new URL(hash, base).href);
    await settle(page);
    const tall = await page.evaluate(() => document.documentElement.scrollHeight);
    await page.setViewportSize({ width, height: Math.min(tall, 3600) });
    await settle(page);
    await page.screenshot({ path: join(into, `${name}-${width}${scheme === "dark" ? "-dark" : ""}.png`) });
    await page.setViewportSize({ width, height });
  }
  await page.close();
}
await browser.close();
await own?.close();
