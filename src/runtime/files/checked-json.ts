import { createHash } from 'node:crypto';

/** The format from which on a file says by its checksum whether its bytes are still those that were written. */
const checkedVersion = 2;

/** Reports whether a value is an object with members of any kind. */
export function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function checksum(text: string): string {
  return createHash('sha256').update(text).digest('hex');
}

/**
 * Renders a record as JSON in which damage shows: `version` first, `sha256` over all other members last. JSON alone
 * shows a flipped bit only where it breaks the grammar; in a number or a name it would go unnoticed.
 */
export function renderChecked(record: Readonly<Record<string, unknown>>, indent?: number): string {
  const { version: _, ...rest } = record;
  const body = { version: checkedVersion, ...rest };
  return `${JSON.stringify({ ...body, sha256: checksum(JSON.stringify(body)) }, null, indent)}\n`;
}

/**
 * Parses what `renderChecked` wrote and returns it without the checksum. A file of an earlier version has none and
 * passes as it is. Throws a plain Error with the reason for anything else; the caller knows the file and the way out.
 */
export function parseChecked(text: string): Readonly<Record<string, unknown>> {
  const value: unknown = JSON.parse(text);
  if (!isRecord(value)) throw new Error('it is not an object');
  const { sha256, ...body } = value;
  const early = sha256 === undefined && (body['version'] === undefined || body['version'] === 1);
  // As it was rendered without an indent, its body need not be rendered again to compare.
  const end = `,"sha256":"${String(sha256)}"}\n`;
  const isSame = text.endsWith(end) && sha256 === checksum(`${text.slice(0, -end.length)}}`);
  if (!early && !isSame && sha256 !== checksum(JSON.stringify(body)))
    throw new Error('its content is not what was written: the checksum differs');
  return body;
}
