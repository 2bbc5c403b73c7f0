import { createHash } from 'node:crypto';

const checkedVersion = 2;

export function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** Returns the members of an object; none of another value. */
export function membersOf(value: unknown): Readonly<Record<string, unknown>> {
  return isRecord(value) ? value : {};
}

/** Reports whether a name is one of a table, not of its prototype. */
export function isKeyOf<T extends object>(table: T, name: PropertyKey): name is keyof T {
  return Object.hasOwn(table, name);
}

/** Returns the members that are not undefined. */
export function defined<T extends object>(members: T): { readonly [Name in keyof T]?: Exclude<T[Name], undefined> } {
  return Object.fromEntries(Object.entries(members).filter(([, value]) => value !== undefined)) as {
    readonly [Name in keyof T]?: Exclude<T[Name], undefined>;
  };
}

/** Returns a record with renamed members; `names` maps old names to new ones. A member that has its new name wins. */
export function renameMembers(
  record: Readonly<Record<string, unknown>>,
  names: Readonly<Record<string, string>>,
): Readonly<Record<string, unknown>> {
  const entries = Object.entries(record).map(([name, value]): [string, unknown] => {
    const renamed = Object.hasOwn(names, name) ? names[name] : undefined;
    return [renamed ?? name, renamed === undefined ? value : (record[renamed] ?? value)];
  });
  return Object.fromEntries(entries);
}

function checksum(text: string): string {
  return createHash('sha256').update(text).digest('hex');
}

/** Renders JSON with `version` first and `sha256` last, a checksum of the other members that detects flipped bits. */
export function renderChecksummed(record: Readonly<Record<string, unknown>>, indent?: number): string {
  const { version: _, ...rest } = record;
  const body = { version: checkedVersion, ...rest };
  return `${JSON.stringify({ ...body, sha256: checksum(JSON.stringify(body)) }, null, indent)}\n`;
}

/** Parses output of `renderChecksummed`. Earlier versions have no checksum. Throws a plain Error with the reason. */
export function parseChecksummed(text: string): Readonly<Record<string, unknown>> {
  const value: unknown = JSON.parse(text);
  if (!isRecord(value)) throw new Error('it is not an object');
  const { sha256, ...body } = value;
  const early = sha256 === undefined && (body['version'] === undefined || body['version'] === 1);
  // Text that was rendered without an indent need not be rendered again.
  const end = `,"sha256":"${String(sha256)}"}\n`;
  const isSame = text.endsWith(end) && sha256 === checksum(`${text.slice(0, -end.length)}}`);
  if (!early && !isSame && sha256 !== checksum(JSON.stringify(body))) throw new Error('checksum mismatch');
  return body;
}
