import { createHash } from 'node:crypto';

/** The first format whose files have a checksum. */
const checkedVersion = 2;

export function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** Returns a record with members of other names: `names` has the new name of each old one. */
export function renameMembers(
  record: Readonly<Record<string, unknown>>,
  names: Readonly<Record<string, string>>,
): Readonly<Record<string, unknown>> {
  const entries = Object.entries(record);
  return Object.fromEntries(entries.map(([name, value]) => [Object.hasOwn(names, name) ? names[name] : name, value]));
}

function checksum(text: string): string {
  return createHash('sha256').update(text).digest('hex');
}

/**
 * Renders a record as JSON: `version` first, and last `sha256`, a checksum of all other members. Without it a flipped
 * bit in a number or a name would go unnoticed.
 */
export function renderChecked(record: Readonly<Record<string, unknown>>, indent?: number): string {
  const { version: _, ...rest } = record;
  const body = { version: checkedVersion, ...rest };
  return `${JSON.stringify({ ...body, sha256: checksum(JSON.stringify(body)) }, null, indent)}\n`;
}

/**
 * Parses the output of `renderChecked` and returns it without the checksum. Files of earlier versions have none and
 * pass. Throws a plain Error with the reason; the caller adds the file and the hint.
 */
export function parseChecked(text: string): Readonly<Record<string, unknown>> {
  const value: unknown = JSON.parse(text);
  if (!isRecord(value)) throw new Error('it is not an object');
  const { sha256, ...body } = value;
  const early = sha256 === undefined && (body['version'] === undefined || body['version'] === 1);
  // A text that was rendered without an indent need not be rendered again to compare.
  const end = `,"sha256":"${String(sha256)}"}\n`;
  const isSame = text.endsWith(end) && sha256 === checksum(`${text.slice(0, -end.length)}}`);
  if (!early && !isSame && sha256 !== checksum(JSON.stringify(body)))
    throw new Error('its content is not what was written: the checksum differs');
  return body;
}
