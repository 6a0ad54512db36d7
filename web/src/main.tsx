import { render } from "preact";
import { App } from "./app.tsx";
import { start } from "./live.ts";

start();
const root = document.getElementById("app");
if (root) render(<App />, root);
