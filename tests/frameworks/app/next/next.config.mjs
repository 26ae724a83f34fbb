const root = process.env.TRACING_ROOT;

export default {
  output: "standalone",
  outputFileTracingRoot: root,
  turbopack: { root },
  serverExternalPackages: ["uform"],
};
