import { cpus } from "node:os";
import type { CoreCount, HardwareDescription } from "../backend/backend.js";
import { backend } from "../backend/chosen.js";
import { UformError } from "../errors.js";
import { capabilitiesAvailable, capabilitiesCompiled } from "../hardware.js";
import { read } from "./arguments.js";
import { UsageError } from "./failures.js";
import { version as packageVersion } from "../version.js";

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
  cores: CoreCount | null;
  memory: Memory | null;
  gpus: HardwareDescription["gpuDevices"] | null;
  capabilities: { compiled: string[]; available: string[] } | null;
  /** Why there is no addon. */
  error: string | null;
}

/** Memory, what is between it and the cores, and the devices near it. */
type Memory = Pick<HardwareDescription, "memoryDomains" | "caches" | "pciDevices" | "problem">;

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
    package: packageVersion,
    addon: null,
    node: process.versions.node,
    platform: platform(),
    cpu: null,
    cores: null,
    memory: null,
    gpus: null,
    capabilities: null,
    error: null,
  };
  try {
    const { version, cpuClass, cpuClasses, cores, ...machine } = backend().hardwareDescribe();
    const { memoryDomains, caches, pciDevices, gpuDevices, problem } = machine;
    return {
      ...bare,
      addon: version,
      cpu: { model: cpus()[0]?.model.trim() || null, class: cpuClass, classes: cpuClasses },
      cores,
      memory: { memoryDomains, caches, pciDevices, problem },
      gpus: gpuDevices,
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
  const { cpu, cores, memory, gpus, capabilities } = machine;
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
  for (const row of memory ? placed(memory) : []) rows.push(row);
  for (const [ordinal, gpu] of (gpus ?? []).entries()) {
    const { name, gpuClass, computeUnits, memoryBytes } = gpu;
    const what = `${gpuClass ?? "of no class"}, ${computeUnits} compute units, ${size(memoryBytes)}`;
    rows.push([`GPU ${ordinal}`, `${name}: ${what}`]);
  }
  if (capabilities) {
    rows.push(["compiled", capabilities.compiled.join(", ")]);
    rows.push(["available", capabilities.available.join(", ")]);
  }
  const width = Math.max(...rows.map(([name]) => name.length)) + 2;
  const lines = rows.map(([name, value]) => `${name.padEnd(width)}${value}\n`);
  return lines.join("") + (machine.error === null ? "" : `\n${machine.error}\n`);
}

function counted({ online, affinity, cpuset, quota }: CoreCount): string {
  const parts = Object.entries({ online, affinity, cpuset, quota });
  return parts.map(([name, cores]) => `${name} ${cores ?? "none"}`).join(", ");
}

/** Rows of the memory domains, the caches by level, and the devices. */
function placed({ memoryDomains, caches, pciDevices, problem }: Memory): [string, string][] {
  const domains = memoryDomains.map(({ id, bytes, cores, allowed }): [string, string] => [
    `memory domain ${id}`,
    `${size(bytes)}, cores ${list(cores)}${allowed ? "" : ", not for this process"}`,
  ]);
  const levels = [...new Set(caches.map(({ level }) => level))].map((level): [string, string] => {
    const alike = caches.filter((cache) => cache.level === level);
    const sizes = [...new Set(alike.map(({ bytes }) => size(bytes)))];
    return [`L${level} caches`, `${alike.length} of ${sizes.join(" or ")}`];
  });
  const devices = pciDevices.map(({ address, memoryDomains }): [string, string] => [
    `device ${address}`,
    memoryDomains.length ? `near memory domain ${list(memoryDomains)}` : "near no memory domain",
  ]);
  const problems: [string, string][] = problem === null ? [] : [["memory", problem]];
  return [...domains, ...levels, ...devices, ...problems];
}

/** Such as `31.2 GiB`. */
function size(bytes: number): string {
  const units = ["bytes", "KiB", "MiB", "GiB", "TiB"];
  const at = Math.min(Math.floor(Math.log2(bytes || 1) / 10), units.length - 1);
  return `${+(bytes / 1024 ** at).toFixed(1)} ${units[at]}`;
}

/** Ascending numbers, in ranges: `0-3,8`. */
function list(numbers: readonly number[]): string {
  const ranges: [number, number][] = [];
  for (const number of numbers) {
    const last = ranges.at(-1);
    if (last?.[1] === number - 1) last[1] = number;
    else ranges.push([number, number]);
  }
  return ranges.map(([first, last]) => (first === last ? first : `${first}-${last}`)).join(",");
}
