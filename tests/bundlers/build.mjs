// An app built by each bundler, as its users would. A build takes the app's folder and one to write to.

import { cpSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import * as esbuild from "esbuild";
import { build as viteBuild } from "vite";
import webpack from "webpack";

const pageOf = (script) => `<!doctype html><link rel="icon" href="data:," />${script}\n`;
/** A page whose script is a module. */
export const asModule = (name) => pageOf(`<script type="module" src="./${name}"></script>`);
const asScript = pageOf('<script defer src="page.js"></script>');

export const builds = {
  async "Vite 8"(app, out) {
    writeFileSync(join(app, "index.html"), asModule("page.mjs"));
    await viteBuild({
      root: app,
      logLevel: "error",
      worker: { format: "es" },
      build: { outDir: out, emptyOutDir: true },
    });
  },

  async "webpack 5"(app, out) {
    const compiler = webpack({
      mode: "production",
      context: app,
      entry: { page: "./page.mjs" },
      output: { path: out },
      performance: false, // it warns of every asset over 244 KiB
    });
    const stats = await new Promise((resolve, reject) =>
      compiler.run((error, stats) => (error ? reject(error) : resolve(stats))),
    );
    await new Promise((resolve) => compiler.close(resolve));
    if (stats.hasErrors() || stats.hasWarnings())
      throw new Error(stats.toString("errors-warnings"));
    writeFileSync(join(out, "index.html"), asScript);
  },

  /** It leaves `new URL("./x.wasm", import.meta.url)` as it is, so the file goes beside the bundle. */
  async "esbuild, modules copied"(app, out) {
    await bundle(app, out, ["page.mjs", "worker.mjs"]);
    const modules = join(app, "node_modules/uform/dist/web");
    for (const name of readdirSync(modules)) {
      if (name.endsWith(".wasm")) cpSync(join(modules, name), join(out, name));
    }
    writeFileSync(join(out, "index.html"), asModule("page.mjs"));
  },

  async "no bundler"(app, out) {
    // A page may have an import map, a worker may not: the import names the file.
    const source = readFileSync(join(app, "embed.mjs"), "utf8");
    cpSync(app, out, { recursive: true });
    writeFileSync(
      join(out, "embed.mjs"),
      source.replace('"uform"', '"./node_modules/uform/dist/web/web.js"'),
    );
    writeFileSync(join(out, "index.html"), asModule("page.mjs"));
  },
};

/** esbuild's bundle, ES modules. */
export async function bundle(app, out, entries, options = {}) {
  await esbuild.build({
    absWorkingDir: app,
    entryPoints: entries,
    outdir: out,
    outExtension: { ".js": ".mjs" },
    bundle: true,
    minify: true,
    format: "esm",
    logLevel: "silent", // a failure is thrown
    ...options,
  });
}
