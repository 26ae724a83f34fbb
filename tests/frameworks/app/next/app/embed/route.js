import { Model } from "uform";

/** Answers the vector of the text in the query, as a server of embeddings would. */
export async function GET(request) {
  const text = new URL(request.url).searchParams.get("text");
  const model = await Model.open(process.env.MODEL);
  const { data } = await model.encodeText(text);
  model.free();
  return Response.json(Array.from(data));
}
