import { isRecord } from '../../runtime/files/checksummed-json.ts';
import { AppError } from '../../runtime/errors.ts';
import { eventFields } from '../../datasets/event-fields.ts';
import { parseJsonInteger } from '../../datasets/json-number.ts';
import { sqlText } from '../../lake/sql/literals.ts';
import type { FailedEvent } from '../../lake/files/failed-events.ts';
import { rowFields } from '../../datasets/dictionaries.ts';
import { ownFields } from '../load/file-fields.ts';

export const userKinds = ['custom', 'platform', 'game'] as const;
export type UserKind = (typeof userKinds)[number];

/** The events to erase: those that match every given member. Of a list of ids, any may match. */
export interface ErasureTarget {
  /** customUserId, customPlatformUserId or sezamUserId. */
  readonly users?: readonly string[];
  /** Absent: any of the three. */
  readonly userKind?: UserKind;
  /** Any of the seven device ids, or hwid. */
  readonly devices?: readonly string[];
  readonly apps?: readonly number[];
}

/** Maximum number of ids of one erasure: each query names all of them. */
const maxErasedIds = 10_000;

interface IdColumn {
  readonly name: string;
  /** Largest integer of a numeric column; undefined for text. */
  readonly max?: bigint;
  readonly type?: string;
}

/** A member of a target: rows match with one of the ids in one of the columns. */
export interface TargetPart {
  readonly columns: readonly IdColumn[];
  readonly ids: readonly string[];
  readonly wanted: ReadonlySet<string>;
}

const userColumns: Readonly<Record<UserKind, IdColumn>> = {
  custom: { name: 'custom_user_id' },
  platform: { name: 'custom_platform_user_id' },
  game: { name: 'sezam_user_id', max: 2n ** 63n - 1n, type: 'BIGINT' },
};
const deviceColumns: readonly IdColumn[] = [
  ...eventFields
    .filter((field) => field.schema['x-device-id'] === true)
    .map((field) => ({ name: field.schema['x-column'] })),
  { name: 'hwid', max: 2n ** 64n - 1n, type: 'DECIMAL(20,0)' },
];
const appColumns: readonly IdColumn[] = [{ name: 'id_app', max: 2n ** 63n - 1n, type: 'BIGINT' }];

export function targetParts({ users, userKind, devices, apps }: ErasureTarget): readonly TargetPart[] {
  const parts: Omit<TargetPart, 'wanted'>[] = [
    ...(users === undefined
      ? []
      : [{ columns: userKind === undefined ? Object.values(userColumns) : [userColumns[userKind]], ids: users }]),
    ...(devices === undefined ? [] : [{ columns: deviceColumns, ids: devices }]),
    ...(apps === undefined ? [] : [{ columns: appColumns, ids: apps.map(String) }]),
  ];
  if (parts.length === 0) throw new AppError('usage', 'an erasure needs a user, a device or an app');
  for (const { ids } of parts) {
    if (ids.length === 0) throw new AppError('usage', 'an erasure needs at least one id');
    if (ids.length > maxErasedIds)
      throw new AppError('usage', `an erasure takes at most ${maxErasedIds} ids, not ${ids.length}`, {
        hint: 'Pass them in several calls.',
      });
    if (ids.some((id) => id === '' || id.includes('\0')))
      throw new AppError('usage', 'an id to erase is empty or contains NUL');
  }
  return parts.map((part) => ({ ...part, wanted: new Set(part.ids) }));
}

/** Returns the literals that a column may have; a numeric column never shows `007`. */
function literals({ max, type }: IdColumn, ids: readonly string[]): string[] {
  if (max === undefined) return ids.map(sqlText);
  return ids.filter((id) => /^(?:0|[1-9]\d{0,19})$/.test(id) && BigInt(id) <= max).map((id) => `${id}::${type}`);
}

/** SQL that is true for a row to erase and never NULL. A table without a column of a part has no matching rows. */
export function matchSql(target: ErasureTarget, has: ReadonlySet<string>): string {
  return targetParts(target)
    .map(({ columns, ids }) => {
      const tests = columns.flatMap((column) => {
        if (!has.has(column.name)) return [];
        const values = literals(column, ids);
        return values.length === 0 ? [] : [`coalesce(${column.name} IN (${values.join(', ')}), false)`];
      });
      return `(${tests.join(' OR ') || 'false'})`;
    })
    .join(' AND ');
}

/** SQL of the user ids by which rows match, with kind and app: `id`, `kind`, `id_app`, `n` rows each. */
export function userIdScopesSql(
  target: ErasureTarget & Required<Pick<ErasureTarget, 'users'>>,
  source: string,
  has: ReadonlySet<string>,
): string {
  const known = userKinds.filter((kind) => has.has(userColumns[kind].name));
  const selects = known.map((kind) => {
    const column = userColumns[kind];
    const values = literals(column, target.users);
    return `SELECT ${column.name}::VARCHAR AS id, ${sqlText(kind)} AS kind, id_app, count(*) AS n FROM ${source} WHERE ${values.length === 0 ? 'false' : `${column.name} IN (${values.join(', ')})`} AND ${matchSql(target, has)} GROUP BY ALL`;
  });
  return selects.join(' UNION ALL ');
}

/** Strings, which are skipped, and numbers of a valid JSON text. */
const stringOrNumber = /"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;

/** Parses JSON with its numbers as texts: a double would change ids beyond 2^53. */
function parseExactly(line: string): unknown {
  JSON.parse(line);
  return JSON.parse(
    line.replaceAll(stringOrNumber, (token) =>
      token.startsWith('"') ? token : `"${parseJsonInteger(token) ?? token}"`,
    ),
  );
}

function isIn(bytes: Buffer, id: string): boolean {
  return bytes.includes(id) || bytes.includes(JSON.stringify(id).slice(1, -1));
}

/**
 * Reports whether a failed event is to be erased. Unreadable data must not be kept: an id matches anywhere in a line
 * that is not a JSON object, and inside a list or an object of its column.
 */
export function matchesFailed({ line, lineBase64 }: FailedEvent, parts: readonly TargetPart[]): boolean {
  let value: unknown;
  try {
    // The text of undecodable bytes is not what was sent.
    if (lineBase64 === undefined) value = parseExactly(line);
  } catch {
    // Not JSON: the bytes are searched.
  }
  const bytes = lineBase64 === undefined ? Buffer.from(line) : Buffer.from(lineBase64, 'base64');
  const record = isRecord(value) ? value : undefined;
  return parts.every(({ columns, ids, wanted }) => {
    if (record === undefined) return ids.some((id) => isIn(bytes, id));
    return columns.some(({ name }) => {
      const found = record[name];
      if (typeof found === 'object' && found !== null)
        return ids.some((id) => isIn(Buffer.from(JSON.stringify(found)), id));
      return wanted.has(String(found));
    });
  });
}

/**
 * Bad rows of loads: each is kept as text, its fields by their names in the file as JSON, or as an unreadable line. If
 * in doubt, it is erased.
 */

type KeptLoad = NonNullable<FailedEvent['load']>;

/** A field of a row by its schema name; undefined if that is unknown or the field was dropped. */
interface Cell {
  readonly name: string | undefined;
  readonly value: unknown;
}

const isOwn = (name: string): boolean => ownFields.some((own) => own === name);

function readCells(line: string, map: NonNullable<KeptLoad['map']>): readonly Cell[] | undefined {
  let value: unknown;
  try {
    value = parseExactly(line);
  } catch {
    return undefined;
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return undefined;
  return Object.entries(value).map(([name, cell]) => {
    const target = Object.hasOwn(map, name) ? map[name] : name;
    const isKnown = typeof target === 'string' && (rowFields.has(target) || isOwn(target));
    return { name: isKnown ? target : undefined, value: cell };
  });
}

/** Returns the spellings of a cell that may be an id. */
function textsOf(value: unknown): string[] {
  const text = String(value);
  const trimmed = text.trim();
  return [text, trimmed, parseJsonInteger(trimmed) ?? trimmed];
}

function hasId(value: unknown, { ids, wanted }: TargetPart): boolean {
  if (value === null || value === undefined) return false;
  if (typeof value === 'object') {
    const bytes = Buffer.from(JSON.stringify(value));
    return ids.some((id) => isIn(bytes, id));
  }
  return textsOf(value).some((text) => wanted.has(text));
}

/** Reports whether a row has an id of a person, in its column or in an unknown field. */
function showsPerson(cells: readonly Cell[], part: TargetPart): boolean {
  const columns = new Set(part.columns.map(({ name }) => name));
  return cells.some(({ name, value }) => {
    if (name !== undefined) {
      const column = rowFields.get(name)?.['x-column'];
      if (column === undefined || !columns.has(column)) return false;
    }
    return hasId(value, part);
  });
}

/** Reports whether a row is of one of the apps; undefined if it names no app. */
function isOfApp(cells: readonly Cell[], { ids }: TargetPart, fallbackIdApp: number | undefined): boolean | undefined {
  const find = (wanted: string): string => {
    const value: unknown = cells.find(({ name }) => name === wanted)?.value ?? '';
    return typeof value === 'string' ? value.trim() : JSON.stringify(value);
  };
  const rowIdApp = find('idApp');
  if (rowIdApp !== '') {
    const app = parseJsonInteger(rowIdApp);
    return app === undefined ? undefined : ids.includes(app);
  }
  if (fallbackIdApp === undefined || find('SDKKey') !== '') return undefined;
  return ids.includes(String(fallbackIdApp));
}

/** Reports whether a line that is not JSON contains an id, plain or escaped as CSV or JSON. */
function isInLine(line: string, { ids }: TargetPart): boolean {
  const bytes = Buffer.from(line);
  return ids.some((id) => isIn(bytes, id) || bytes.includes(id.replaceAll('"', '""')));
}

function isAppInLine(line: string, { ids }: TargetPart): boolean {
  const numbers = new Set(line.match(/\d+/g) ?? []);
  return ids.some((id) => numbers.has(id));
}

const isAppPart = ({ columns }: TargetPart): boolean => columns.some(({ name }) => name === 'id_app');

/**
 * Reports whether a bad row is to be erased. An unreadable row is if an id is anywhere in it; a row without an app may
 * be of any app.
 */
export function matchesFailedRow({ line }: FailedEvent, load: KeptLoad, parts: readonly TargetPart[]): boolean {
  const people = parts.filter((part) => !isAppPart(part));
  const apps = parts.find(isAppPart);
  const cells = readCells(line, load.map ?? {});
  if (cells === undefined) {
    if (people.length > 0) return people.every((part) => isInLine(line, part));
    return apps !== undefined && isAppInLine(line, apps);
  }
  if (!people.every((part) => showsPerson(cells, part))) return false;
  return apps === undefined || (isOfApp(cells, apps, load.idApp) ?? people.length > 0);
}
