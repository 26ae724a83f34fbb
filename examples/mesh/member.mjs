// One process of a run: joins it, embeds its share of some texts on its own GPUs, and adds up with
// the others, so that every GPU of the run ends up with the sum over all of them.
import { parseArgs } from "node:util";
import { Executor, Mesh, Model } from "uform";

const { values } = parseArgs({
  options: {
    index: { type: "string" },
    count: { type: "string" },
    directory: { type: "string" },
    job: { type: "string" },
    devices: { type: "string" },
    model: { type: "string" },
  },
});

const executor = Executor.forVram({ devices: values.devices.split(",").map(Number) });
const mesh = await Mesh.join(executor, {
  hostDomainIndex: Number(values.index),
  hostDomainCount: Number(values.count),
  directory: values.directory,
  job: values.job,
});
const run = mesh.describe();
console.log(
  `joined: GPUs ${run.firstGpuIndex} to ${run.firstGpuIndex + run.gpusPerHostDomain - 1} of ` +
    `${run.gpusPerColocatedDomain} (${run.gpuClass}, ${run.multimemTier})`,
);

// One text a GPU, all of one length, so that they lie in equal parts.
const colours = ["red", "blue", "green"];
const things = ["sea", "tree", "bicycle"];
const share = Array.from({ length: run.gpusPerHostDomain }, (_, gpu) => {
  const at = run.firstGpuIndex + gpu;
  return `the ${things[at % 3]} is ${colours[Math.floor(at / 3) % 3]}`;
});
const model = Model.loadVram(values.model, { executor });
const vectors = await model.encodeText(share, { executor });
await mesh.allReduce(vectors);

const sums = await vectors.toHost();
const mean = Array.from(sums.row(0), (sum) => sum / run.gpusPerColocatedDomain);
console.log(`mean of ${run.gpusPerColocatedDomain} texts: ${mean.slice(0, 4).join(" ")} …`);

vectors.free();
model.free();
mesh.free();
executor.free();
