import type { CompiledQuantization } from "../backend/backend.js";
import { native } from "../backend/native.js";
import { deferred } from "../deferred.js";
import { compiledExecutor, Executor } from "../executor.js";
import { read, word } from "./arguments.js";
import { UsageError } from "./failures.js";
import { whileWatched } from "./signals.js";

export const quantizeUsage = `Usage: uform quantize IN OUT --weights i8|f16

Writes a model with smaller weights, for pages to download and disks to hold.

  IN                 a model's folder or .safetensors file, its weights in f32, f16 or bf16
  OUT                a folder that is new or empty; it appears when it is complete, never half
  --weights i8       8-bit numbers, a quarter of f32: vectors that differ a little
  --weights f16      16-bit floats, half of f32: vectors that are as good as the same
  -h, --help         this text

OUT has the weights in one file, the settings and tokenizer as they are, and the model's card and
licence. It loads like any model and computes in any precision; in i8, it takes the numbers as they
are. At the end it is told how near its vectors are to those of IN, over a few built-in texts.
`;

/** `uform quantize`. */
export async function quantize(args: string[]): Promise<void> {
  const { given, files } = read(args, { weights: "value" });
  const [from, into, more] = files;
  if (!from || !into) {
    throw new UsageError("quantize takes a model and a new folder: uform quantize IN OUT");
  }
  if (more !== undefined) {
    throw new UsageError(`quantize takes a model and a new folder, and ${more} was given as well`);
  }
  const weights = word("weights", given.weights, ["i8", "f16"]);
  if (weights === undefined) throw new UsageError("--weights is missing: i8 or f16");

  const executor = Executor.forRam();
  const found = await whileWatched(
    async (signal) => {
      const runner = compiledExecutor(executor);
      return await deferred<CompiledQuantization>(
        native.backend(),
        { signal },
        {
          submit: (call, settle) =>
            native.backend().modelQuantize(from, into, weights, runner, call, settle),
        },
      );
    },
    // It waits for the call to end, which leaves nothing behind.
    () => executor.free(),
  );
  process.stdout.write(told(found));
}

/** Such as `90.9 MB of weights became 22.9 MB`, and how near the vectors are. */
function told({ bytesBefore, bytesAfter, likenesses }: CompiledQuantization): string {
  const megabytes = (bytes: number) => `${(bytes / 1e6).toFixed(1)} MB`;
  const lines = likenesses.map(
    ({ precision, texts, least, mean }) =>
      `cosine to the original over ${texts} texts, computed in ${precision}: ` +
      `least ${digits(least)}, mean ${digits(mean)}`,
  );
  return [
    `${megabytes(bytesBefore)} of weights became ${megabytes(bytesAfter)}`,
    ...lines,
    "",
  ].join("\n");
}

/** Rounded down, so that only what is equal is 1. */
function digits(cosine: number): string {
  return (Math.floor(cosine * 1e6) / 1e6).toFixed(6);
}
