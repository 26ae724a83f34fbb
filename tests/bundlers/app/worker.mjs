import { embed } from "./embed.mjs";

addEventListener("message", ({ data: question }) => {
  embed(...question).then(
    (result) => postMessage({ result }),
    (error) => postMessage({ failure: error.message }),
  );
});
