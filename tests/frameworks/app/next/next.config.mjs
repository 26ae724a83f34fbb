const root = process.env.TRACING_ROOT;

export default {
  output: "standalone",
  outputFileTracingRoot: root,
  turbopack: { root },
  serverExternalPackages: ["uform"],
  // Minifying takes most of webpack's time.
  webpack: (config) => ({ ...config, optimization: { ...config.optimization, minimize: false } }),
};
