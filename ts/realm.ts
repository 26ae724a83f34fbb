/** How an array of numbers is made over memory that is there. */
type Over<View> = new (buffer: ArrayBufferLike, offset: number, length: number) => View;

/**
 * The same numbers in an array of this realm. The addon makes arrays of the main realm, and test runners run scripts
 * in realms of their own, where `instanceof` and comparisons know no other's.
 *
 * @internal
 */
export function ownView<View extends Float32Array | Uint32Array | Uint8Array>(
  Own: Over<View>,
  view: View,
): View {
  return view instanceof Own ? view : new Own(view.buffer, view.byteOffset, view.length);
}
