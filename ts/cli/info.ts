import { cpus } from "node:os";
import { backend } from "../backend/native.js";
import { UformError } from "../errors.js";
import { capabilitiesAvailable, capabilitiesCompiled } from "../hardware.js";
import { read } from "./arguments.js";
import { UsageError } from "./failures.js";
import { packageVersion } from "./version.js";

export const infoUsage = `Usage: uform info [--json]

Tells what the package sees of this machine: what to add to a report of a problem.

  --json       as JSON, whose keys stay
  -h, --help   this text

Without an addon for this platform it tells so, and exits with 1.
`;

/** What limits the usable cores, for people. */
const limits: Readonly<Record<string, string>> = {
  machine: "all there are",
  affinity: "limited by the affinity mask (taskset)",
  cpuset: "limited by the control group's cpuset",
  quota: "limited by the control group's quota of CPU time",
};

/** The machine, in the shape of `--json`. What cannot be known is `null`. */
interface Machine {
  package: string;
  addon: string | null;
  node: string;
  platform: string;
  cpu: { model: string | null; class: string; classes: readonly string[] } | null;
  cores: Cores | null;
  capabilities: { compiled: string[]; available: string[] } | null;
  /** Why there is no addon. */
  error: string | null;
}

interface Cores {
  usable: number;
  /** What `usable` is limited by. */
  limit: string;
  online: number;
  affinity: number | null;
  cpuset: number | null;
  quota: number | null;
}

/** `uform info`. */
export function info(args: string[]): void {
  const { given, files } = read(args, { json: "flag" });
  if (files.length > 0) throw new UsageError(`info takes no arguments, and ${files[0]} was given`);
  const found = machine();
  process.stdout.write(given.json ? `${JSON.stringify(found, null, 2)}\n` : table(found));
  if (found.error !== null) process.exitCode = 1;
}

function machine(): Machine {
  const bare: Machine = {
    package: packageVersion(),
    addon: null,
    node: process.versions.node,
    platform: platform(),
    cpu: null,
    cores: null,
    capabilities: null,
    error: null,
  };
  try {
    const { version, cpuClass, cpuClasses, cores } = backend().hardwareDescribe();
    return {
      ...bare,
      addon: version,
      cpu: { model: cpus()[0]?.model.trim() || null, class: cpuClass, classes: cpuClasses },
      cores: {
        usable: cores.usable,
        limit: cores.limit,
        online: cores.online,
        affinity: cores.affinity ?? null,
        cpuset: cores.cpuset ?? null,
        quota: cores.quota ?? null,
      },
      capabilities: {
        compiled: capabilitiesCompiled().split(","),
        available: capabilitiesAvailable().split(","),
      },
    };
  } catch (failure) {
    if (!(failure instanceof UformError)) throw failure;
    return { ...bare, error: failure.message };
  }
}

/** Such as `linux-x64, glibc 2.36`. */
function platform(): string {
  const { header } = (process.report?.getReport() ?? {}) as {
    header?: { glibcVersionRuntime?: string };
  };
  const libc = header?.glibcVersionRuntime;
  return `${process.platform}-${process.arch}${libc === undefined ? "" : `, glibc ${libc}`}`;
}

/** Lines of a name and what there is to say about it, for people. */
function table(machine: Machine): string {
  const { cpu, cores, capabilities } = machine;
  const rows: [string, string][] = [
    ["uform", machine.package],
    ["addon", machine.addon ?? "none"],
    ["Node.js", machine.node],
    ["platform", machine.platform],
  ];
  if (cpu) {
    rows.push(["CPU", cpu.model ?? "unknown"], ["CPU class", cpu.class]);
    rows.push(["classes that run", cpu.classes.join(", ")]);
  }
  if (cores) {
    rows.push(["usable cores", `${cores.usable}: ${limits[cores.limit] ?? cores.limit}`]);
    rows.push(["counted", counted(cores)]);
  }
  if (capabilities) {
    rows.push(["compiled", capabilities.compiled.join(", ")]);
    rows.push(["available", capabilities.available.join(", ")]);
  }
  const width = Math.max(...rows.map(([name]) => name.length)) + 2;
  const lines = rows.map(([name, value]) => `${name.padEnd(width)}${value}\n`);
  return lines.join("") + (machine.error === null ? "" : `\n${machine.error}\n`);
}

function counted({ online, affinity, cpuset, quota }: Cores): string {
  const parts = Object.entries({ online, affinity, cpuset, quota });
  return parts.map(([name, cores]) => `${name} ${cores ?? "none"}`).join(", ");
}
