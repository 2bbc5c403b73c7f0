/** What an SDK key may be, as the end of a sentence for whoever chose another. */
export const sdkKeyRule =
  'An SDK key has 1 to 255 characters and no comma: the SDKKey filter of an export takes several, with commas between.';

/** Says whether a text can be an app's SDK key: 1 to 255 code points, none of them a comma. */
export function isSdkKey(text: string): boolean {
  const { length } = Array.from(text);
  return length >= 1 && length <= 255 && !text.includes(',');
}
