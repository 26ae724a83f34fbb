// Text to passages: paragraphs, each with the heading it stands under; long ones are cut between sentences.

const LONGEST = 600; // characters: about 130 tokens, a third of what a card can show without scrolling
const HEADING = 60; // characters: a longer line is text

const segmenter = new Intl.Segmenter(undefined, { granularity: "sentence" });

/** The sentences of a text, with the spaces between them: joined, they are the text. */
export function sentences(text) {
  return Array.from(segmenter.segment(text), ({ segment }) => segment);
}

/** Passages `{ source, heading, text }` of a text, in its order. `source` names where the text is from. */
export function passagesOf(text, source) {
  const passages = [];
  let heading = "";
  for (const paragraph of text.split(/\r?\n\s*\n/)) {
    const line = paragraph.replace(/\s+/g, " ").trim();
    if (line === "") continue;
    if (isHeading(line)) heading = line.replace(/^#+ /, "");
    else for (const part of cut(line)) passages.push({ source, heading, text: part });
  }
  return passages;
}

function isHeading(line) {
  return line.length <= HEADING && (/^#+ /.test(line) || !/[.!?:;,…。！？]["”’)]*$/.test(line));
}

/** Parts of at most LONGEST characters, as long as sentences allow; an endless sentence is cut hard. */
function cut(paragraph) {
  if (paragraph.length <= LONGEST) return [paragraph];
  const parts = [""];
  const pieces = sentences(paragraph).flatMap((sentence) => sentence.match(/.{1,600}/gsu));
  for (const piece of pieces) {
    if (parts.at(-1).length + piece.length > LONGEST) parts.push("");
    parts.push(parts.pop() + piece);
  }
  return parts.map((part) => part.trim()).filter((part) => part !== "");
}
