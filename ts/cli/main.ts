#!/usr/bin/env node
/**
 * `npx uform …`: the package from a terminal.
 *
 * `info` tells what the package sees of this machine, `embed` makes vectors of the lines of text
 * files, `quantize` makes a model's weights smaller. What was asked for goes to standard output, everything else to standard error. Exit codes:
 * 0 done, 1 failed, 2 not understood; a signal ends it as usual.
 */
import { provide } from "../backend/chosen.js";
import { native } from "../backend/native.js";
import { InvalidArgumentError, UformError } from "../errors.js";
import { nearest } from "../options.js";
import { embed, embedUsage } from "./embed.js";
import { Failure, UsageError } from "./failures.js";
import { info, infoUsage } from "./info.js";
import { quantize, quantizeUsage } from "./quantize.js";
import { version } from "../version.js";

// As the entry does, whose modules are joined to one file: these are apart from it.
provide(native);

const commands: Readonly<
  Record<string, { run: (args: string[]) => void | Promise<void>; usage: string }>
> = {
  info: { run: info, usage: infoUsage },
  embed: { run: embed, usage: embedUsage },
  quantize: { run: quantize, usage: quantizeUsage },
};

const usage = `Usage: uform <command> [options]

Commands:
  info       the machine as the package sees it
  embed      vectors of the lines of text files
  quantize   a model with smaller weights

\`uform <command> --help\` tells a command's options.

  -h, --help      this text
  -v, --version   the package's version
`;

async function main([name, ...rest]: string[]): Promise<void> {
  if (name === "--version" || name === "-v") return print(`${version}\n`);
  if (name === "--help" || name === "-h") return print(usage);
  if (name === undefined) throw new UsageError(`a command is missing\n\n${usage.trimEnd()}`);
  const command = Object.hasOwn(commands, name) ? commands[name] : undefined;
  if (command === undefined) {
    const near = nearest(name, Object.keys(commands));
    const hint = near
      ? `; did you mean ${near}?`
      : `; there are ${Object.keys(commands).join(", ")}`;
    throw new UsageError(`${JSON.stringify(name)} is not a command${hint}`);
  }
  const options = rest.includes("--") ? rest.slice(0, rest.indexOf("--")) : rest;
  if (options.includes("--help") || options.includes("-h")) return print(command.usage);
  await command.run(rest);
}

function print(text: string): void {
  process.stdout.write(text);
}

/** The reader of standard output may stop at any time, as `head` does: that is no failure. */
process.stdout.on("error", (error: NodeJS.ErrnoException) => {
  if (error.code === "EPIPE") process.exit(0);
  process.stderr.write(`uform: cannot write to standard output: ${error.message}\n`);
  process.exit(1);
});

main(process.argv.slice(2)).catch((failure: unknown) => {
  const misunderstood = failure instanceof UsageError || failure instanceof InvalidArgumentError;
  process.exitCode = misunderstood ? 2 : 1;
  process.stderr.write(`uform: ${told(failure)}\n`);
});

/** A failure in words. Only a defect is shown with its stack. */
function told(failure: unknown): string {
  if (!(failure instanceof Error)) return String(failure);
  const expected = failure instanceof UformError || failure instanceof Failure;
  return expected || "syscall" in failure ? failure.message : (failure.stack ?? failure.message);
}
