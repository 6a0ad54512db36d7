// build.mjs [FOLDER] builds the page into FOLDER, by default dist beside this file: index.html,
// below assets/ the script and the style sheet, whose names hold their digests, and below licences/
// the texts of the licences of the packages that are in the script. The same
// source gives the same bytes, which scripts/test-web.sh compares.
import { copyFileSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { basename, dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const into = resolve(process.argv[2] ?? join(here, "dist"));

rmSync(into, { recursive: true, force: true });
mkdirSync(into, { recursive: true });
const result = await build({
  absWorkingDir: here,
  entryPoints: { app: "src/main.tsx", style: "src/style.css" },
  outdir: join(into, "assets"),
  entryNames: "[name]-[hash]",
  bundle: true,
  minify: true,
  format: "esm",
  target: ["es2022"],
  jsx: "automatic",
  jsxImportSource: "preact",
  legalComments: "none",
  metafile: true,
  logLevel: "warning",
});
const made = Object.keys(result.metafile.outputs).map((path) => basename(path));
const named = (start, end) => made.find((name) => name.startsWith(start) && name.endsWith(end));
const page = readFileSync(join(here, "src/index.html"), "utf8")
  .replace("app.js", named("app-", ".js"))
  .replace("style.css", named("style-", ".css"));
writeFileSync(join(into, "index.html"), page);
const { dependencies } = JSON.parse(readFileSync(join(here, "package.json"), "utf8"));
mkdirSync(join(into, "licences"));
for (const [name, version] of Object.entries(dependencies)) {
  copyFileSync(join(here, "node_modules", name, "LICENSE"), join(into, "licences", `${name.replace("/", "-")}@${version}.txt`));
}
