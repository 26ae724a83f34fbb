// The documentation: its links lead somewhere, its code is code, its figures are those of docs/bench.json, and
// nothing public is missing. examples/examples.test.mjs runs the programs in it.

import assert from "node:assert/strict";
import { existsSync, readdirSync, readFileSync, statSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { after, before, describe, test } from "node:test";
import { transform } from "esbuild";
import * as uform from "uform";
import { filled, source, written } from "../bench/tables.mjs";
import { modelPath, root } from "./support.mjs";

const read = (path) => readFileSync(join(root, path), "utf8");

const pages = [
  "README.md",
  "CONTRIBUTING.md",
  ...readdirSync(join(root, "docs"))
    .filter((name) => name.endsWith(".md"))
    .map((name) => `docs/${name}`),
];

/** A page without its blocks of code, whose brackets are no links. */
const prose = (page) => read(page).replace(/^```.*?^```$/gms, "");
const blocks = (page) => [...read(page).matchAll(/^```(js|ts)\n(.*?)^```$/gms)];

describe("the README", () => {
  const lines = read("README.md").split("\n");

  test("is read standing up: under 180 lines", () => assert.ok(lines.length < 180, lines.length));

  test("leads to every page of the documentation", () => {
    for (const page of pages.slice(1)) assert.ok(read("README.md").includes(`](${page})`), page);
  });
});

describe("every page", () => {
  test("has lines of a reader's width", () => {
    for (const page of pages) {
      // A table of the reference may be wider; one of the README is read in a terminal.
      const isProse = (line) => page === "README.md" || !line.startsWith("|");
      const wide = read(page)
        .split("\n")
        .filter((line) => isProse(line) && [...line].length > 120);
      assert.deepEqual(wide, [], page);
    }
  });

  test("has links that lead somewhere", () => {
    let count = 0;
    for (const page of pages) {
      for (const [, target] of prose(page).matchAll(/\]\(([^)]+)\)/g)) {
        if (/^https?:/.test(target)) continue;
        const [path, anchor] = target.split("#");
        const file = path === "" ? join(root, page) : join(root, dirname(page), path);
        assert.ok(existsSync(file) && statSync(file).isFile(), `${page}: ${target}`);
        if (anchor === undefined) continue;
        const anchors = anchorsOf(relative(root, file));
        assert.ok(anchors.includes(anchor), `${page}: ${target}; there are ${anchors.join(", ")}`);
        count++;
      }
    }
    assert.ok(count > 5, `${count} anchors`);
  });

  test("has code that parses, and imports what the package exports", async () => {
    let count = 0;
    for (const page of pages) {
      for (const [, language, code] of blocks(page)) {
        await transform(code, { loader: language, format: "esm" }).catch(({ message }) =>
          assert.fail(`${page}: ${message}\n${code}`),
        );
        for (const [, names] of code.matchAll(/import \{([^}]+)\} from "uform(?:\/web)?"/g)) {
          for (const name of names.split(",").map((name) => name.trim()))
            assert.ok(name in uform, `${page}: the package exports no ${name}`);
          count++;
        }
      }
    }
    assert.ok(count > 5, `${count} imports`);
  });

  test("has the figures of docs/bench.json", () => {
    const run = JSON.parse(read(source));
    for (const page of pages) {
      const text = read(page);
      const marks = text.match(/<!-- bench: /g)?.length ?? 0;
      assert.equal(text.match(/<!-- \/bench -->/g)?.length ?? 0, marks, page);
      assert.equal(marks > 0, written.includes(page), page);
      assert.ok(filled(text, run) === text, `${page} is out of date: npm run bench:tables`);
    }
  });
});

describe("the reference", () => {
  let model;
  before(() => (model = uform.Model.loadRam(modelPath)));
  after(() => model?.free());

  const reference = read("docs/api.md");
  const all = pages.map(read).join("\n");
  const missing = (names, text) => names.filter((name) => !text.includes(name));

  test("names everything that the package exports", () => {
    assert.deepEqual(missing(Object.keys(uform), all), []);
  });

  test("names every method and property of a class", () => {
    const classes = Object.values(uform).filter(
      ({ prototype }) => prototype !== undefined && !(prototype instanceof Error),
    );
    const internal = ["constructor", "freeAsync"];
    for (const { name, prototype } of classes) {
      const members = Object.getOwnPropertyNames(prototype).filter(
        (member) => !internal.includes(member),
      );
      assert.deepEqual(missing(members, all), [], name);
    }
    assert.ok(classes.includes(uform.Model) && classes.includes(uform.Embeddings));
  });

  test("has the code of every error", () => {
    const errors = Object.values(uform).filter(({ prototype }) => prototype instanceof Error);
    assert.ok(errors.length > 10);
    for (const Failure of errors.filter((Failure) => Failure !== uform.UformError)) {
      const { code } = new Failure("so");
      assert.match(reference, new RegExp(`\`${Failure.name}\` +\\| \`${code}\``));
    }
  });

  test("has every option that a call accepts", async () => {
    const unknown = { "no such option": 1 };
    const { Executor, Model, ThreadPool, Mesh } = uform;
    for (const call of [
      () => Executor.forRam(unknown),
      () => Executor.forVram(unknown),
      () => Executor.onPool(8n, unknown),
      () => ThreadPool.spawn(unknown),
      () => Model.loadRam("x", unknown),
      () => Model.loadVram("x", unknown),
      () => Model.open("x", unknown),
      () => model.encodeText("x", unknown),
      () => model.encodeTextSync("x", unknown),
      () => Mesh.join(undefined, unknown),
    ]) {
      const { message } = await Promise.resolve()
        .then(call)
        .then(
          () => assert.fail(`${call} accepted it`),
          (error) => error,
        );
      const [, names] = /\(valid: (.*)\)/.exec(message) ?? assert.fail(message);
      const text = String(call).includes("Mesh") ? read("docs/gpus-and-mesh.md") : reference;
      const options = names.split(", ").map((name) => `\`${name}\``);
      assert.deepEqual(missing(options, text), [], String(call));
    }
  });
});

/** The anchors of a page's headings, as GitHub makes them. */
function anchorsOf(page) {
  return [...prose(page).matchAll(/^#+ (.*)$/gm)].map(([, heading]) =>
    heading
      .toLowerCase()
      .replace(/[^\p{L}\p{N}\s_-]/gu, "")
      .replaceAll(" ", "-"),
  );
}
