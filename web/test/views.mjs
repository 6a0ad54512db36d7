// What the walk and the pictures look at: each view's name and its address, from what a server
// has. It works with any server, and leaves out what that has nothing for.
export async function viewsOf(base, token) {
  const headers = token ? { Authorization: "Bearer " + token } : {};
  const get = async (path) => {
    const res = await fetch(new URL(path, base), { headers, signal: AbortSignal.timeout(20_000) });
    return res.ok ? res.json() : null;
  };
  const enc = encodeURIComponent;
  const views = [["overview", "#/"], ["samples", "#/samples"], ["failures", "#/failures"], ["hints", "#/hints"], ["compare", "#/compare"], ["pending", "#/pending"], ["workers", "#/workers"], ["engines", "#/engines"]];
  const runs = (await get("v1/history/runs"))?.runs ?? [];
  for (const [i, r] of runs.slice(0, 8).entries()) {
    views.push([`run-${i}`, `#/run/${enc(r.run)}`]);
    const found = await get(`v1/results?run=${enc(r.run)}&split=train&limit=100`);
    const row = found?.results[0];
    if (!row) continue;
    const step = `#/run/${enc(r.run)}/step/${row.step}`;
    views.push([`step-${i}`, step]);
    if (row.uid) views.push([`group-${i}`, `${step}/group/${enc(row.uid)}`]);
    views.push([`sample-${i}`, `#/sample/${row.key}`]);
    const failed = (await get(`v1/results?run=${enc(r.run)}&failed=1&limit=1`))?.results[0];
    if (failed) views.push([`failed-${i}`, `#/sample/${failed.key}`]);
  }
  views.push(["no-view", "#/nothing/here"], ["no-sample", "#/sample/0"], ["no-step", "#/run/nobody/step/1"], ["not-found", "#/find?run=nobody&step=1&id=nothing"]);
  return views;
}

// settle waits until a view shows what it asked for: nothing loads, and pictures are there.
export async function settle(page) {
  await page.waitForFunction(() => document.querySelector("main h1, main h2") && !document.querySelector('[aria-busy="true"]'), null, { timeout: 15_000 });
  await page.waitForFunction(() => [...document.querySelectorAll(".picture.blank span")].every((s) => {
    const box = s.closest(".picture").getBoundingClientRect();
    return s.textContent !== "" || box.top > innerHeight || box.bottom < 0 || box.width === 0;
  }), null, { timeout: 15_000 });
  await page.evaluate(() => new Promise((go) => requestAnimationFrame(() => requestAnimationFrame(go))));
}
