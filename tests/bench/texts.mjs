// The workload: English sentences put together by a seeded generator, so that
// every machine embeds the same texts and the reference vectors stay valid.
// The corpus has the lengths of real notes and paragraphs: many short, few
// long, 47 tokens on average, some over the 256 that the model reads.

// prettier-ignore
const subjects = [
  "the night train to the coast", "a retired lighthouse keeper", "our backup server", "the city council",
  "an unfinished cathedral", "a flock of starlings", "the second draft of the contract", "her grandmother's recipe",
  "the satellite's solar panel", "a stray orange cat", "the physics department", "every third bicycle",
  "the compiler", "a glacier in the far north", "the new accountant", "an old cello",
  "the river after the thaw", "a crowded ferry", "the museum's archive", "this year's barley harvest",
  "the hospital's waiting list", "a broken thermostat", "the chess champion", "an anonymous letter",
];
// prettier-ignore
const verbs = [
  "slowly reveals", "has never needed", "quietly replaces", "depends on", "was built beside", "outlives",
  "cannot explain", "keeps returning to", "is often mistaken for", "measures", "borrows from", "will soon require",
  "interrupts", "carefully avoids", "pays for", "was photographed with",
];
// prettier-ignore
const objects = [
  "a shortage of copper wire", "the smell of fresh paint", "three unrelated theorems", "a map drawn in 1742",
  "the noise of the market", "its own maintenance schedule", "an argument about commas", "half a tonne of gravel",
  "the weather in November", "a cache that nobody invalidates", "the patience of its visitors", "an unpaid invoice",
  "a bridge too narrow for buses", "the colour of deep water", "a vaccine trial", "two centuries of tax records",
  "the rhythm of a sewing machine", "an overdue library book", "a garden of medicinal herbs", "the speed of light",
];
// prettier-ignore
const circumstances = [
  "whenever the moon is full", "although the budget was cut", "since the factory closed", "without anyone noticing",
  "because the instructions were translated twice", "in spite of heavy snow", "until the auditors arrive",
  "as the minutes of the meeting show", "which surprised the neighbours", "at least on weekdays",
  "according to the oldest residents", "for reasons that are still disputed",
];
// prettier-ignore
const questions = [
  "how to repair", "where can I buy", "who invented", "why do people fear", "the history of", "when to replace",
  "is it safe to paint", "how much is", "what is inside", "the best way to store",
];
// prettier-ignore
const things = [
  "a wooden boat", "sourdough bread", "a noisy fan", "old photographs", "a leaking tap", "garden tools",
  "a violin bow", "winter tyres", "a steam engine", "tax returns", "a stone wall", "house plants",
  "a deep well", "pocket watches", "a beehive", "copper pipes", "a mountain tent", "dried mushrooms", "a fuse box", "silk scarves",
];

// Each is one token.
// prettier-ignore
const words = [
  "river", "stone", "window", "garden", "winter", "letter", "music", "paper", "table", "silver", "market", "bridge",
  "forest", "engine", "doctor", "summer", "island", "castle", "mirror", "kitchen", "village", "signal", "yellow",
  "circle", "history", "student", "dinner", "morning", "valley", "harbor", "guitar", "pocket",
];

/** 200 questions of about 8 tokens. */
export function queries() {
  return questions.flatMap((question) => things.map((thing) => `${question} ${thing}`));
}

/** 32 sentences of about 16 tokens. */
export function shortTexts() {
  const random = generator(1);
  return Array.from({ length: 32 }, () => sentence(random));
}

/** The first `count` texts of the corpus; a longer corpus begins with the shorter one. */
export function corpus(count) {
  const random = generator(2);
  return Array.from({ length: count }, () => {
    const sentences = Math.round(Math.exp(0.7 + 0.85 * normal(random)));
    const length = Math.min(24, Math.max(1, sentences));
    return Array.from({ length }, () => sentence(random)).join(" ");
  });
}

/** Words of exactly so many tokens, the opening and the closing one included; another `seed`, other words. */
export function textOfTokens(tokens, seed) {
  const random = generator(seed);
  return Array.from({ length: tokens - 2 }, () => pick(random, words)).join(" ");
}

function sentence(random) {
  const parts = [pick(random, subjects), pick(random, verbs), pick(random, objects)];
  if (random() < 0.5) parts.push(pick(random, circumstances));
  const text = parts.join(" ");
  return `${text[0].toUpperCase()}${text.slice(1)}.`;
}

function pick(random, list) {
  return list[Math.floor(random() * list.length)];
}

/** Mulberry32: uniform numbers in [0, 1) from a 32-bit seed. */
function generator(seed) {
  return () => {
    seed = (seed + 0x6d2b79f5) | 0;
    let mixed = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** A normally distributed number (Box and Muller's transform). */
function normal(random) {
  return Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random());
}
