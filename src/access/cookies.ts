/** The value of a cookie; undefined where it is not there, or there twice, as another site of the domain might set it. */
export function findCookie(header: string | undefined, name: string): string | undefined {
  const values = (header ?? '').split(';').flatMap((pair) => {
    const text = pair.trim();
    return text.startsWith(`${name}=`) ? [text.slice(name.length + 1)] : [];
  });
  return values.length === 1 ? values[0] : undefined;
}
