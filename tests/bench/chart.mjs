// Line charts as SVG: panels side by side over the same logarithmic axes, every
// line named at its end in the last panel. The drawing has no background, and
// its colours follow the reader's light or dark scheme.

const PANEL = { width: 350, height: 380, gap: 24 };
const MARGIN = { top: 72, right: 230, bottom: 78, left: 64 };
const LABEL_HEIGHT = 16;
/** Colours on light and on dark: both stand out from their ground, and from each other. */
const COLOURS = [
  ["#0969da", "#58a6ff"],
  ["#bc4c00", "#f0883e"],
  ["#8250df", "#bc8cff"],
  ["#1a7f37", "#3fb950"],
  ["#9a6700", "#d29922"],
  ["#cf222e", "#ff7b72"],
];
/** How the lines of one colour are told apart. */
const DASHES = ["none", "7 4", "2 3", "10 3 2 3"];

/**
 * A figure is { title, caption, x: { title, ticks }, y: { title }, panels }; a panel
 * { title, lines }; a line { name, colour, dash, points: [[x, y], …] }, where `colour` and
 * `dash` count from 0, and coordinates are above 0. Without a point there is nothing to draw: an error.
 */
export function chart({ title, caption, x, y, panels }) {
  const values = panels.flatMap(({ lines }) =>
    lines.flatMap(({ points }) => points.map(([, v]) => v)),
  );
  if (values.length === 0) throw new Error(`${title}: no figures`);
  const ticks = ticksAround(Math.min(...values), Math.max(...values));
  const wide = panels.length === 1 ? 2 * PANEL.width : PANEL.width;
  const width = MARGIN.left + panels.length * wide + (panels.length - 1) * PANEL.gap + MARGIN.right;
  const height = MARGIN.top + PANEL.height + MARGIN.bottom;
  const bottom = MARGIN.top + PANEL.height;
  const toY = logarithmic(ticks[0], ticks.at(-1), bottom, MARGIN.top);
  const middle = MARGIN.top + PANEL.height / 2;

  const drawn = panels.map((panel, i) => {
    const left = MARGIN.left + i * (wide + PANEL.gap);
    const toX = logarithmic(x.ticks[0], x.ticks.at(-1), left, left + wide);
    const last = i === panels.length - 1;
    return [
      text(left, MARGIN.top - 12, panel.title, { class: "ink strong" }),
      ...ticks.map((tick) => rule(left, toY(tick), left + wide, toY(tick))),
      ...(i === 0 ? ticks.map((tick) => text(left - 8, toY(tick) + 4, shown(tick), END)) : []),
      ...x.ticks.map((tick) => rule(toX(tick), MARGIN.top, toX(tick), bottom)),
      ...x.ticks.map((tick) => text(toX(tick), bottom + 18, shown(tick), MIDDLE)),
      text(left + wide / 2, bottom + 40, x.title, MIDDLE),
      ...panel.lines.map((line) => curve(line, toX, toY)),
      ...(last ? labels(panel.lines, left + wide + 18, toX, toY) : []),
    ];
  });
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" role="img">`,
    element("title", {}, escaped(title)),
    element("desc", {}, escaped(`${caption} ${spoken(panels, x, y)}`)),
    `<style>${style()}</style>`,
    text(MARGIN.left, 26, title, { class: "ink title" }),
    text(16, middle, y.title, { ...MIDDLE, transform: `rotate(-90 16 ${middle})` }),
    ...drawn.flat(),
    text(MARGIN.left, height - 12, caption, { class: "faint" }),
    "</svg>\n",
  ].join("\n");
}

const END = { class: "ink", "text-anchor": "end" };
const MIDDLE = { class: "ink", "text-anchor": "middle" };

function curve({ colour, dash, points }, toX, toY) {
  const at = points.map(([x, y]) => [round(toX(x)), round(toY(y))]);
  const d = at.map(([x, y], i) => `${i === 0 ? "M" : "L"}${x} ${y}`).join("");
  const dots = at.map(([cx, cy]) => element("circle", { class: `f${colour}`, cx, cy, r: 2.5 }));
  const line = { class: `line l${colour}`, d, "stroke-dasharray": DASHES[dash % DASHES.length] };
  return [element("path", line), ...dots].join("");
}

/** A name for each line beside its last point, moved up or down where names would overlap. */
function labels(lines, left, toX, toY) {
  const named = lines
    .filter(({ points }) => points.length > 0)
    .map((line) => ({ line, from: line.points.at(-1).map((value, i) => [toX, toY][i](value)) }))
    .toSorted((a, b) => a.from[1] - b.from[1]);
  const places = spread(
    named.map(({ from }) => from[1]),
    LABEL_HEIGHT,
    MARGIN.top + PANEL.height,
  );
  return named.map(({ line: { name, colour }, from: [x, y] }, i) => {
    const leader = {
      class: `leader l${colour}`,
      d: `M${round(x + 4)} ${round(y)}L${left - 3} ${round(places[i])}`,
    };
    return element("path", leader) + text(left, places[i] + 4, name, { class: `f${colour}` });
  });
}

/** Ascending places, moved as little as keeps them `gap` apart and none beyond `end`. */
export function spread(places, gap, end) {
  const moved = [...places];
  for (let i = 1; i < moved.length; i++) moved[i] = Math.max(moved[i], moved[i - 1] + gap);
  let limit = end;
  for (let i = moved.length - 1; i >= 0; i--, limit -= gap) moved[i] = Math.min(moved[i], limit);
  return moved;
}

/** The numbers 1, 2 and 5 times powers of ten that enclose a range; over long ranges the powers alone. */
export function ticksAround(least, most) {
  const steps = (mantissas) => {
    const ticks = [];
    for (let power = Math.floor(Math.log10(least)); ; power++) {
      for (const mantissa of mantissas) {
        const tick = mantissa * 10 ** power;
        if (tick <= least) ticks.length = 0; // a lower end nearer to the range
        ticks.push(tick);
        if (tick >= most && ticks.length > 1) return ticks;
      }
    }
  };
  const fine = steps([1, 2, 5]);
  return fine.length <= 12 ? fine : steps([1]);
}

function logarithmic(from, to, start, end) {
  const scale = (end - start) / Math.log(to / from);
  return (value) => start + scale * Math.log(value / from);
}

/** The figures as a sentence, for readers who do not see the lines. */
function spoken(panels, x, y) {
  const line = ({ name, points }) =>
    `${name}: ${points.map(([at, value]) => `${shown(at)}: ${shown(Number(value.toPrecision(3)))}`).join(", ")}`;
  return panels
    .map(({ title, lines }) => `${title} (${x.title}: ${y.title}). ${lines.map(line).join("; ")}.`)
    .join(" ");
}

function style() {
  // Plain rules, no variables: not every viewer of SVG has them.
  const scheme = (i) => [
    ...COLOURS.map((pair, c) => `.l${c}{stroke:${pair[i]}}.f${c}{fill:${pair[i]}}`),
    `.ink{fill:${["#1f2328", "#e6edf3"][i]}}`,
    `.faint{fill:${["#59636e", "#9198a1"][i]}}`,
    `.rule{stroke:${["#d1d9e0", "#3d444d"][i]}}`,
  ];
  return [
    "text{font:13px system-ui,sans-serif}",
    "text.title{font-size:17px;font-weight:600}",
    "text.strong{font-weight:600}",
    "text.faint{font-size:12px}",
    ".line{fill:none;stroke-width:2;stroke-linejoin:round}",
    ".leader{fill:none;opacity:.5}",
    ...scheme(0),
    `@media(prefers-color-scheme:dark){${scheme(1).join("")}}`,
  ].join("");
}

function rule(x1, y1, x2, y2) {
  return element("line", {
    class: "rule",
    x1: round(x1),
    y1: round(y1),
    x2: round(x2),
    y2: round(y2),
  });
}

function text(x, y, content, attributes = {}) {
  return element("text", { x: round(x), y: round(y), ...attributes }, escaped(content));
}

function element(name, attributes, content = "") {
  const list = Object.entries(attributes).map(
    ([key, value]) => ` ${key}="${escaped(String(value))}"`,
  );
  return `<${name}${list.join("")}>${content}</${name}>`;
}

function escaped(content) {
  return content.replace(/[&<>"]/g, (character) => `&#${character.charCodeAt(0)};`);
}

function shown(number) {
  return number.toLocaleString("en", { maximumFractionDigits: 3 });
}

function round(number) {
  return Number(number.toFixed(1));
}
