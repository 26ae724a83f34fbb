export * from "./glue.js";
export { default } from "./glue.js";
