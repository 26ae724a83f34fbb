const pools = ["threads", "forks", "vmThreads", "vmForks"];
const project = (name, options) => ({ test: { name, include: ["*.check.mjs"], ...options } });

export default {
  test: {
    projects: [
      ...pools.map((pool) => project(pool, { pool })),
      project("jsdom", { environment: "jsdom" }),
    ],
  },
};
