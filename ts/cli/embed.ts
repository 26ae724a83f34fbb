import type { TextEmbeddings } from "../embeddings.js";
import { Executor } from "../executor.js";
import { type EncodeTextOptions, Model } from "../model.js";
import { count, read, word } from "./arguments.js";
import { Failure, UsageError } from "./failures.js";
import { type Batch, batches, type Input, inputs } from "./lines.js";
import { modelPath } from "./models.js";
import { format, openOutput, type Output } from "./output.js";
import { Progress } from "./progress.js";

export const embedUsage = `Usage: uform embed [FILE…] [options]

Makes a vector of every line of the files, in their order; of standard input where no file is
named, or for "-".

  --model M          the model's folder or .safetensors file; otherwise that in the environment
                     variable UFORM_MODEL, or the only model in ./models
  --out F            a file that ends in .jsonl, .ndjson or .npy; otherwise JSON lines go to
                     standard output
  --threads N        how many threads; otherwise 7/8 of the cores this process may use
  --prompt NAME      one of the model's prompts, which is put before each text
  --prompt-text T    a prompt as it is
  --pooling P        for a model that does not say how: mean, cls, max, last, mean-sqrt or
                     weighted-mean
  --dimensions N     keep the first N numbers of each vector (Matryoshka models)
  --truncate error   a text over the model's token limit is an error; otherwise it is cut, and at
                     the end it is told how many were
  -h, --help         this text

A JSON line is {"text": "…", "embedding": [0.1, …]}. A .npy file has a matrix of 32-bit floats with
a row a text, for numpy.load. A file appears when it is complete, never half.

Text is UTF-8, or UTF-16 with a byte order mark; what is ill-formed becomes U+FFFD. Lines end with LF or
CRLF. An empty line is a text like any other, so that rows and lines have the same numbers.
`;

const options = {
  model: "value",
  out: "value",
  threads: "value",
  prompt: "value",
  "prompt-text": "value",
  pooling: "value",
  dimensions: "value",
  truncate: "value",
} as const;

/** `uform embed`. */
export async function embed(args: string[]): Promise<void> {
  const { given, files } = read(args, options);
  if (files.filter((file) => file === "-").length > 1) {
    throw new UsageError("- is there twice, and standard input can be read once");
  }
  if (given.out !== undefined) format(given.out);
  const threads = count("threads", given.threads);
  const encoding: EncodeTextOptions = {
    prompt: given.prompt,
    promptText: given["prompt-text"],
    pooling: given.pooling as EncodeTextOptions["pooling"],
    dimensions: count("dimensions", given.dimensions),
  };
  const refuseLongTexts = word("truncate", given.truncate, ["error"]) === "error";
  const path = modelPath(given.model);
  const from = inputs(files);

  const executor = Executor.forRam({ threads });
  try {
    const model = await Model.open(path, { executor });
    try {
      const options = { ...encoding, executor };
      // No text at all: what the model cannot do is said before anything is read or written.
      const { dimensions } = await model.encodeText([], options);
      const output = openOutput(given.out, dimensions);
      try {
        const run = new Run(model, options, output, refuseLongTexts);
        await run.through(from, shown(from, given.out));
        output.finish();
      } catch (failure) {
        output.discard();
        throw failure;
      }
    } finally {
      model.free();
    }
  } finally {
    executor.free();
  }
}

/** The way of texts from inputs through a model to an output. */
class Run {
  /** What ends the run before its end: the first failure. */
  readonly #controller = new AbortController();
  #bytes = 0;
  #texts = 0;
  #truncated = 0;

  constructor(
    private readonly model: Model,
    private readonly options: EncodeTextOptions,
    private readonly output: Output,
    private readonly refuseLongTexts: boolean,
  ) {}

  /**
   * While one batch is computed, the one before is written and the next is read. No more than these
   * are in memory, however slowly the output is taken.
   */
  async through(inputs: Input[], progress: Progress | undefined): Promise<void> {
    const { signal } = this.#controller;
    let written: Promise<void> = Promise.resolve();
    try {
      for (const input of inputs) {
        for await (const batch of batches(input, signal)) {
          const before = written;
          written = this.#take(batch, before, progress);
          // It may fail while input is waited for.
          written.catch((reason: unknown) => this.#controller.abort(reason));
          await before;
        }
      }
      await written;
    } catch (failure) {
      this.#controller.abort(failure);
      throw signal.reason;
    } finally {
      progress?.end();
    }
    if (this.#truncated === 0) return;
    process.stderr.write(
      `uform: ${this.#truncated} of ${this.#texts} texts have more than ` +
        `${this.model.describe().tokenLimit} tokens, and were cut\n`,
    );
  }

  async #take(batch: Batch, before: Promise<void>, progress: Progress | undefined): Promise<void> {
    const { texts, bytes } = batch;
    const [found] = await Promise.all([
      this.model.encodeText(texts, {
        ...this.options,
        signal: this.#controller.signal,
        onProgress: (done, total) =>
          progress?.at(this.#bytes + (bytes * done) / total, this.#texts + done),
      }),
      before,
    ]);
    this.#check(batch, found);
    await this.output.write(texts, found);
    this.#bytes += bytes;
    this.#texts += texts.length;
  }

  /** Counts the texts that were cut, or refuses the first of them. */
  #check({ source, line }: Batch, { tokens, truncated }: TextEmbeddings): void {
    const cut = truncated.reduce((sum, one) => sum + one, 0);
    this.#truncated += cut;
    if (cut === 0 || !this.refuseLongTexts) return;
    const first = truncated.indexOf(1);
    throw new Failure(
      `${source}:${line + first}: the text has ${tokens[first]} tokens, and the model takes ` +
        `${this.model.describe().tokenLimit}; without --truncate error it is cut`,
    );
  }
}

/** The progress bar, on a terminal that does not also show the output. */
function shown(inputs: Input[], out: string | undefined): Progress | undefined {
  if (!process.stderr.isTTY || (out === undefined && process.stdout.isTTY)) return undefined;
  const sizes = inputs.map(({ size }) => size ?? NaN);
  const total = sizes.reduce((sum, size) => sum + size, 0);
  return new Progress(Number.isNaN(total) ? undefined : total);
}
