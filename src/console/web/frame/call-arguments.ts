/** Arguments of a call; a list is given as the same name again and again. */
export type CallArguments = Readonly<Record<string, string | readonly string[] | undefined>>;

/** Renders arguments as a query or a form body. */
export function renderArguments(given: CallArguments): string {
  const text = new URLSearchParams();
  for (const [name, value] of Object.entries(given))
    for (const each of value === undefined ? [] : typeof value === 'string' ? [value] : value) text.append(name, each);
  return text.toString();
}
