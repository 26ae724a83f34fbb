import { DeferredLimitError, Executor, Model, Mood, UformError, type Embeddings } from "uform";

async function main(path: string): Promise<string> {
  using executor = Executor.forRam({ threads: 2, deferredLimit: 8 });
  await using model = await Model.open(path, {
    executor,
    onProgress: (done: number, total: number) => void [done, total],
  });
  const found: Embeddings = await model.encodeText(["a red bicycle", "a bike painted red"], {
    executor,
    signal: new AbortController().signal,
  });
  const [first, second]: Float32Array[] = [found.row(0), found.row(1)];
  const cosine: number = first!.reduce((sum, value, i) => sum + value * second![i]!, 0);
  executor.drain(Mood.Parked);
  return cosine > 0.8 ? "close" : `cosine ${cosine}`;
}

try {
  // @ts-expect-error: a misspelled option is a compile error
  Executor.forRam({ thread: 2 });
  console.log("a misspelled option was accepted");
} catch (error) {
  if (!(error instanceof UformError) || error instanceof DeferredLimitError) throw error;
  console.log(await main(process.argv[2]!));
}
