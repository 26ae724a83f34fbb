/** The package's version, as in its `package.json`: a page has none to read. @internal */
export const version = "0.1.0";
