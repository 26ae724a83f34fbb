// The package as built. By its name it cannot be imported here: this folder's own package.json hides it.
export * from "../../dist/index.mjs";
