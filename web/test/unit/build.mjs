// Builds a module of src so that a test can import it: Node.js 20 does not read TypeScript.
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { build } from "esbuild";

export const src = join(dirname(fileURLToPath(import.meta.url)), "../../src");

export async function load(name) {
  const into = mkdtempSync(join(tmpdir(), "rewardloop-web-"));
  const file = join(into, "module.mjs");
  try {
    await build({ absWorkingDir: src, entryPoints: [name], outfile: file, bundle: true, format: "esm", target: "node20", jsx: "automatic", jsxImportSource: "preact", logLevel: "silent" });
    return await import(pathToFileURL(file).href);
  } finally {
    rmSync(into, { recursive: true, force: true });
  }
}
