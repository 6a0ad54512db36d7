// A walk through every view of the page in Chromium, at two widths. Each check is a sentence; the
// walk ends with 1 where one fails. REWARDLOOP_WEB_URL names a server to walk through instead of
// the generated one; what depends on generated data is then left out, and said.
import { createRequire } from "node:module";
import { chromium } from "playwright-core";
import { hostile, mock } from "./mock.mjs";
import { settle, viewsOf } from "./views.mjs";

const axePath = createRequire(import.meta.url).resolve("axe-core/axe.min.js");
const given = process.env.REWARDLOOP_WEB_URL;
const secret = process.env.REWARDLOOP_WEB_TOKEN ?? "";
const own = given ? null : await mock({ beat: 300 });
const base = given ?? own.url;
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM, args: process.getuid?.() === 0 ? ["--no-sandbox"] : [] });

let passed = 0;
const failures = [];
async function check(says, f) {
  try {
    await f();
    passed++;
  } catch (err) {
    failures.push(says);
    console.log(`FAIL ${says}\n     ${String(err?.message ?? err).split("\n").slice(0, 12).join("\n     ")}`);
  }
}
function equal(have, want, what) {
  if (JSON.stringify(have) !== JSON.stringify(want)) throw new Error(`${what}: have ${JSON.stringify(have)}, want ${JSON.stringify(want)}`);
}
function ok(value, what) {
  if (!value) throw new Error(what);
}

// open gives a page that notes what a browser complains of.
async function open(options = {}, token = secret) {
  const context = await browser.newContext({ viewport: { width: 1440, height: 900 }, reducedMotion: "reduce", ...options });
  const page = await context.newPage();
  page.complaints = [];
  page.elsewhere = [];
  page.setDefaultTimeout(15_000);
  // A picture or a step that is not there is shown as such; Chromium notes each 404 all the same.
  page.on("console", (m) => {
    if (["error", "warning"].includes(m.type()) && !/the server responded with a status of (404|401)/.test(m.text())) page.complaints.push(m.text());
  });
  page.on("pageerror", (e) => page.complaints.push(String(e)));
  page.on("request", (r) => {
    const url = new URL(r.url());
    if (!["blob:", "data:"].includes(url.protocol) && url.origin !== new URL(base).origin) page.elsewhere.push(r.url());
  });
  await page.addInitScript(() => {
    addEventListener("securitypolicyviolation", (e) => console.error(`CSP: ${e.violatedDirective} ${e.blockedURI} ${e.sample}`));
  });
  if (token) await page.addInitScript((t) => sessionStorage.setItem("rewardloop.token", t), token);
  return page;
}
const go = async (page, hash) => {
  await page.goto(new URL(hash, base).href);
  await settle(page);
};
const hash = (page) => page.evaluate(() => location.hash);

// axe's own script is evaluated in a world beside the page's, where the policy does not hold.
async function axe(page) {
  const { readFileSync } = await import("node:fs");
  const client = await page.context().newCDPSession(page);
  const { frameTree } = await client.send("Page.getFrameTree");
  const { executionContextId } = await client.send("Page.createIsolatedWorld", { frameId: frameTree.frame.id, worldName: "axe" });
  const run = async (expression) => {
    const r = await client.send("Runtime.evaluate", { expression, contextId: executionContextId, awaitPromise: true, returnByValue: true });
    if (r.exceptionDetails) throw new Error(r.exceptionDetails.exception?.description ?? r.exceptionDetails.text);
    return r.result.value;
  };
  await run(readFileSync(axePath, "utf8") + ";0");
  const found = await run(`axe.run(document, { resultTypes: ["violations"] }).then((r) => JSON.stringify(r.violations.map((v) => ({ id: v.id, impact: v.impact, nodes: v.nodes.slice(0, 3).map((n) => n.html.slice(0, 160) + " " + (n.failureSummary ?? "").slice(0, 160)) }))))`);
  await client.detach();
  return JSON.parse(found).filter((v) => v.impact === "serious" || v.impact === "critical");
}

const views = await viewsOf(base, secret);
for (const [width, height, colorScheme] of [[1440, 900, "light"], [390, 844, "light"], [1440, 900, "dark"], [390, 844, "dark"]]) {
  const page = await open({ viewport: { width, height }, colorScheme });
  for (const [name, where] of views) {
    const at = `${name} at ${width} px${colorScheme === "dark" ? " in the dark" : ""}`;
    if (colorScheme === "dark" && width === 390 && !/overview|step-0|sample-0/.test(name)) continue;
    page.complaints.length = 0;
    await check(`${at} loads`, () => go(page, where));
    await check(`${at} has one heading of the first order`, async () => equal(await page.locator("h1").count(), 1, "h1"));
    await check(`${at} does not scroll sideways`, async () => {
      const [have, want] = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
      ok(have <= want, `${have} px wide in ${want} px`);
    });
    await check(`${at} has nothing that axe calls serious`, async () => equal(await axe(page), [], "axe"));
    await check(`${at} leaves the console empty`, async () => equal(page.complaints, [], "console"));
    await check(`${at} asks no other site`, async () => equal(page.elsewhere, [], "requests"));
    await check(`${at} runs nothing of what strangers wrote`, async () => {
      equal(await page.evaluate(() => [window.hacked ?? null, document.querySelectorAll("main script, main iframe, main [onerror], main [onload]").length]), [null, 0], "window.hacked, elements");
      equal(await page.evaluate(() => [...document.querySelectorAll("a[href]")].map((a) => a.getAttribute("href")).filter((h) => !/^(#|\?plain$)/.test(h))), [], "links out of the page");
    });
  }
  await page.context().close();
}

await check("the ? key opens the list of keys, and Escape closes it", async () => {
  const page = await open();
  await go(page, "#/");
  await page.keyboard.press("?");
  ok(await page.locator("dialog[open]").isVisible(), "no dialog");
  equal(await axe(page), [], "axe");
  await page.keyboard.press("Escape");
  equal(await page.locator("dialog[open]").count(), 0, "dialogs");
  await page.context().close();
});

await check("g and a letter go to each view", async () => {
  const page = await open();
  await go(page, "#/");
  for (const [key, want] of [["s", "#/samples"], ["f", "#/failures"], ["h", "#/hints"], ["c", "#/compare"], ["p", "#/pending"], ["w", "#/workers"], ["e", "#/engines"], ["o", "#/"]]) {
    await page.keyboard.press("g");
    await page.keyboard.press(key);
    await page.waitForFunction((h) => location.hash === h, want);
  }
  await page.context().close();
});

await check("the dark colours follow the system", async () => {
  const page = await open({ colorScheme: "dark" });
  await go(page, "#/");
  const light = (c) => c.match(/\d+/g).slice(0, 3).reduce((a, b) => a + Number(b), 0) / 3;
  const colours = () => page.evaluate(() => [getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]);
  let [back, text] = await colours();
  ok(light(back) < 60 && light(text) > 180, `in the dark: ${back}, ${text}`);
  await page.emulateMedia({ colorScheme: "light" });
  [back, text] = await colours();
  ok(light(back) > 230 && light(text) < 80, `in the light: ${back}, ${text}`);
  await page.context().close();
});

if (own) {
  await check("a failed sample's reason is two clicks from the overview, by its run and by the failures", async () => {
    const page = await open();
    await go(page, "#/");
    await page.locator("section.run").first().locator(".fact", { hasText: "failed" }).getByRole("link").click();
    await settle(page);
    const why = page.locator("#samples .card .why").first();
    await why.waitFor();
    ok(/judge|ocr/.test(await why.textContent()), "the card says nothing of the reason");
    await page.waitForFunction(() => {
      const box = document.querySelector("#samples .card .why")?.getBoundingClientRect();
      return box && box.top >= 0 && box.top < innerHeight;
    });
    await page.locator("#samples .card a").first().click();
    await settle(page);
    ok((await page.locator(".errors .message").first().textContent()).length > 20, "no reason");
    await go(page, "#/");
    await page.locator(".failures a").first().click();
    await page.waitForFunction(() => location.hash.startsWith("#/sample/"));
    await settle(page);
    ok(/optical flow|signal 9|judge/.test(await page.locator(".errors .message").first().textContent()), "no reason");
    await page.context().close();
  });

  await check("j and k go through a gallery, Enter opens, j and k go on from sample to sample, u goes up", async () => {
    const page = await open();
    await go(page, "#/samples?run=flux-ocr-grpo&step=23&split=train&sort=best");
    const keys = await page.locator(".card a").evaluateAll((all) => all.map((a) => a.getAttribute("href")));
    const focused = () => page.evaluate(() => document.activeElement.getAttribute("href"));
    await page.keyboard.press("j");
    await page.keyboard.press("j");
    await page.keyboard.press("ArrowRight");
    equal(await focused(), keys[2], "the third");
    await page.keyboard.press("k");
    equal(await focused(), keys[1], "back to the second");
    await page.keyboard.press("ArrowDown");
    ok(keys.indexOf(await focused()) > 3, "the row below");
    await page.keyboard.press("ArrowUp");
    equal(await focused(), keys[1], "the row above");
    await page.keyboard.press("Enter");
    await page.waitForFunction((h) => location.hash === h, keys[1]);
    await settle(page);
    await page.keyboard.press("j");
    await page.waitForFunction((h) => location.hash === h, keys[2]);
    await settle(page);
    await page.keyboard.press("ArrowLeft");
    await page.waitForFunction((h) => location.hash === h, keys[1]);
    await settle(page);
    await page.keyboard.press("u");
    await page.waitForFunction(() => location.hash.includes("/group/"));
    await settle(page);
    await page.keyboard.press("u");
    await page.waitForFunction(() => /\/step\/23$/.test(location.hash));
    await page.context().close();
  });

  await check("/ searches the samples, and letters that are typed go nowhere else", async () => {
    const page = await open();
    await go(page, "#/samples");
    await page.keyboard.press("/");
    await page.keyboard.type("go COLD BREW");
    await page.waitForFunction(() => new URLSearchParams(location.hash.split("?")[1]).get("q") === "go COLD BREW");
    await page.keyboard.press("Control+A");
    await page.keyboard.type("COLD BREW");
    await page.waitForFunction(() => new URLSearchParams(location.hash.split("?")[1]).get("q") === "COLD BREW");
    await settle(page);
    await page.waitForFunction(() => document.querySelectorAll(".card").length > 0 && [...document.querySelectorAll(".card .prompt")].every((p) => p.textContent.includes("COLD BREW")));
    await page.context().close();
  });

  await check("a drawing of steps says its values to the pointer and to arrow keys, and opens a step", async () => {
    const page = await open();
    await go(page, "#/run/flux-ocr-grpo");
    const chart = page.getByRole("slider").first();
    await chart.focus();
    const last = await chart.getAttribute("aria-valuetext");
    ok(/^step 24: reward, mean ± std: 0\.\d+;/.test(last), last);
    await page.keyboard.press("ArrowLeft");
    ok((await chart.getAttribute("aria-valuetext")).startsWith("step 23:"), "the arrow key");
    const box = await chart.boundingBox();
    await page.mouse.move(box.x + box.width / 3, box.y + 60);
    const hovered = await chart.getAttribute("aria-valuetext");
    ok(/^step (7|8|9):/.test(hovered), hovered);
    await chart.focus();
    await page.keyboard.press("Home");
    await page.keyboard.press("Enter");
    await page.waitForFunction(() => location.hash === "#/run/flux-ocr-grpo/step/1");
    await settle(page);
    ok(await page.locator(".timeline svg").isVisible(), "a step whose trace is gone is drawn from what the store holds");
    await page.context().close();
  });

  await check("the timeline says what a sample did, in which attempt, and leads to it", async () => {
    const page = await open();
    await go(page, "#/run/flux-ocr-grpo/step/24");
    const chart = page.locator(".timeline svg");
    await chart.focus();
    await page.keyboard.press("ArrowRight");
    ok(/gpu-.*scoring|after/.test(await page.locator(".readout").textContent()), "no readout");
    ok(/last sample arrived, .* exposed so far/.test(await chart.textContent()), "no tail");
    ok((await page.locator(".timeline .p-failed").getAttribute("d")).length > 20, "no failed attempt is drawn");
    await page.keyboard.press("Enter");
    await page.waitForFunction(() => location.hash.startsWith("#/sample/"));
    await page.context().close();
  });

  await check("what a reader read is drawn on the picture, on a video's frame as well", async () => {
    const page = await open();
    const image = own.rows.find((r) => r.run === "flux-ocr-grpo" && r._i === 1 && r.components.ocr !== null);
    await go(page, `#/sample/${image.key}`);
    const inside = async () => page.evaluate(() => {
      const p = document.querySelector(".shot .picture").getBoundingClientRect(), b = document.querySelector(".boxes rect").getBoundingClientRect();
      return [(b.left - p.left) / p.width, (b.top - p.top) / p.height].map((v) => Math.round(v * 100) / 100);
    });
    equal(await inside(), [0.12, 0.36], "the corner of the box");
    equal(await page.locator(".box-text").first().textContent(), image._read, "the text");
    ok((await page.locator(".judge").textContent()).includes("Does the picture show what was asked for?"), "the judge's question");
    await page.getByLabel("show what was read").uncheck();
    equal(await page.locator(".boxes").count(), 0, "boxes");
    const video = own.rows.find((r) => r.media[0]?.kind === "video" && r._i === 1 && r.components.ocr !== null);
    await go(page, `#/sample/${video.key}`);
    const first = await inside();
    await page.getByRole("button", { name: "Frame 81" }).click();
    ok((await inside())[0] > first[0], "the box moves with the frame");
    await page.context().close();
  });

  await check("values change by themselves, without events as well, and come back when the server does", async () => {
    const page = await open();
    await go(page, "#/");
    const line = page.locator(".status .say").first();
    const changes = async (from) => page.waitForFunction((t) => document.querySelector(".status .say").textContent !== t, from);
    await page.waitForFunction(() => document.querySelector(".link").textContent === "live");
    await changes(await line.textContent());
    const step = await open();
    await go(step, "#/run/flux-ocr-grpo/step/24");
    const drawn = await step.locator(".timeline .p-open").getAttribute("d");
    await step.waitForFunction((d) => document.querySelector(".timeline .p-open").getAttribute("d") !== d, drawn);
    await step.context().close();
    await fetch(new URL("_mock?events=off", base));
    await page.waitForFunction(() => document.querySelector(".link").textContent === "every 2 s");
    await changes(await line.textContent());
    await fetch(new URL("_mock?events=on", base));
    await page.context().close();
  });

  await check("a server that asks for a token is asked with it, and a wrong one is said to be wrong", async () => {
    await fetch(new URL("_mock?token=open-sesame-and-more", base));
    try {
      const page = await open();
      await page.goto(base);
      await page.getByLabel("Token").fill("wrong");
      await page.getByRole("button", { name: "Show the state" }).click();
      await page.getByText("does not accept this token").waitFor();
      equal(await axe(page), [], "axe");
      await page.getByLabel("Token").fill("open-sesame-and-more");
      await page.getByRole("button", { name: "Show the state" }).click();
      await page.locator("section.run").first().waitFor();
      await go(page, "#/samples?run=flux-ocr-grpo");
      await page.waitForFunction(() => document.querySelector(".card img")?.naturalWidth > 0);
      equal(await page.evaluate(() => [localStorage.length, document.cookie, sessionStorage.getItem("rewardloop.token")]), [0, "", "open-sesame-and-more"], "where the token is");
      ok(!(await page.content()).includes("open-sesame"), "the token stands in the page");
      ok(!page.url().includes("sesame"), "the token stands in the address");
      equal(page.complaints, [], "console");
      await page.context().close();
    } finally {
      await fetch(new URL("_mock?token=", base));
    }
  });

  for (const state of ["empty", "off"]) {
    await check(`a server ${state === "empty" ? "that has seen nothing" : "without a store"} says so in every view`, async () => {
      await fetch(new URL(`_mock?state=${state}`, base));
      try {
        for (const width of [1440, 390]) {
          const page = await open({ viewport: { width, height: 800 } });
          for (const where of ["#/", "#/samples", "#/failures", "#/hints", "#/compare", "#/pending", "#/workers", "#/engines", "#/run/flux-ocr-grpo", "#/run/flux-ocr-grpo/step/24"]) {
            await go(page, where);
            ok(await page.locator("main .empty, main .note, main .lead, main table").count() > 0, `${where} is blank`);
            equal(await axe(page), [], `axe at ${where}`);
            equal(page.complaints, [], `console at ${where}`);
            ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), `${where} scrolls sideways`);
          }
          await page.context().close();
        }
      } finally {
        await fetch(new URL("_mock?state=full", base));
      }
    });
  }

  await check("a server that goes away is said to be away, and what was last known stays", async () => {
    const other = await mock({ beat: 300 });
    const page = await open();
    await page.goto(other.url);
    await settle(page);
    await other.close();
    await page.waitForFunction(() => /no connection, as of/.test(document.querySelector(".link").textContent));
    ok(await page.locator("section.run").first().isVisible(), "the runs are gone");
    await page.context().close();
  });

  await check("hostile text is shown as it is", async () => {
    const page = await open();
    const row = own.rows.find((r) => r.prompt.startsWith(hostile));
    await go(page, `#/sample/${row.key}`);
    ok((await page.locator("main").textContent()).includes(hostile), "the text is not there");
    equal(await page.evaluate(() => window.hacked ?? null), null, "window.hacked");
    await page.context().close();
  });
} else {
  console.log("left out: what needs the generated data");
}

await browser.close();
await own?.close();
console.log(`${passed} checks passed, ${failures.length} failed, in ${views.length} views`);
process.exit(failures.length ? 1 : 0);
