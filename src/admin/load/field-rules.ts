import { isRecord } from '../../runtime/files/checksummed-json.ts';
import { createTimeReader, namedTimeFormats } from '../../runtime/time-format.ts';
import { sqlText } from '../../lake/sql/literals.ts';

/**
 * The rules of a map (docs/load.md#files-of-rows): names of fields, forms of time, factors, country codes, constants.
 * Pure. A cell that its rule cannot read stays a text that fails the checks of its field: no value is lost in silence.
 */

/** A field with a change of its cells. */
export interface FieldRule {
  readonly field: string;
  /** Form of a time (runtime/time-format.ts): the cell becomes Unix seconds. */
  readonly time?: string;
  /** Multiplies numbers of at most 14 digits before the point and 10 after it. */
  readonly factor?: number;
  /** A country code in any case, also UK: it becomes ISO 3166-1 alpha-2. */
  readonly country?: 'iso';
  /** A row without a value is bad, and so is a file without the field. */
  readonly required?: boolean;
}

/**
 * Maps names in the file to schema names; null drops a field. `*` is null to drop all others. `constants` has values of
 * fields for all rows.
 */
export type FieldMap = Readonly<Record<string, string | null | FieldRule | Readonly<Record<string, string>>>>;

const otherFields = '*';
const constantsName = 'constants';
const maxFactorDigits = 12;

const isRule = (value: unknown): value is FieldRule => isRecord(value) && typeof value['field'] === 'string';

/** Returns why a rule is invalid. */
function findRuleFault(name: string, value: unknown): string | undefined {
  if (name === otherFields) return value === null ? undefined : `${otherFields} must be null`;
  if (value === null || typeof value === 'string') return undefined;
  if (!isRecord(value)) return `${name} must be a field, null, or an object`;
  if (!isRule(value))
    return name === constantsName && Object.values(value).every((one) => typeof one === 'string')
      ? undefined
      : `${name} must have a field`;
  const { time, factor, country, required, field: _, ...others } = value;
  const [other] = Object.keys(others);
  if (other !== undefined) return `${name} has the unknown rule ${other}`;
  if (time !== undefined && (typeof time !== 'string' || createTimeReader(time) === undefined))
    return `the time of ${name} must be ${namedTimeFormats.join(', ')}, or a pattern such as %d.%m.%Y`;
  const isFactor = typeof factor === 'number' && factor > 0 && /^\d{1,6}(\.\d{1,6})?$/.test(String(factor));
  if (factor !== undefined && !isFactor)
    return `the factor of ${name} must be a number such as 0.01, of at most ${maxFactorDigits} digits`;
  if (required !== undefined && typeof required !== 'boolean') return `required of ${name} must be true or false`;
  return country === undefined || country === 'iso' ? undefined : `the country of ${name} must be iso`;
}

/** Parses a map; a text says why it is invalid. */
export function parseFieldMap(value: unknown): FieldMap | string {
  if (!isRecord(value)) return 'it is not an object of field names';
  for (const [name, rule] of Object.entries(value)) {
    const fault = findRuleFault(name, rule);
    if (fault !== undefined) return fault;
  }
  return value as FieldMap;
}

/** Returns the field of a column, null to drop it, and the rule of its cells. */
export function findTarget(map: FieldMap, name: string): { readonly target: string | null; readonly rule?: FieldRule } {
  const found = Object.hasOwn(map, name) && name !== otherFields ? map[name] : undefined;
  if (found === null || typeof found === 'string') return { target: found };
  if (isRule(found)) return { target: found.field, rule: found };
  return { target: map[otherFields] === null ? null : name };
}

/** Lists the constants of a map. */
export function listConstants(map: FieldMap): readonly (readonly [field: string, value: string])[] {
  const constants = map[constantsName];
  return isRecord(constants) && !isRule(constants) ? Object.entries(constants) : [];
}

/** Returns the first field that a map requires and that is not taken. */
export function findRequired(map: FieldMap, isTaken: (field: string) => boolean): string | undefined {
  const rules = Object.values(map).filter((value) => isRule(value));
  return rules.find(({ field, required }) => required === true && !isTaken(field))?.field;
}

/** Lists the fields that a map names. */
export function listTargets(map: FieldMap): readonly string[] {
  const ofColumns = Object.keys(map).flatMap((name) => {
    const { target } = findTarget(map, name);
    return target === null || name === otherFields || (name === constantsName && target === name) ? [] : [target];
  });
  return [...ofColumns, ...listConstants(map).map(([field]) => field)];
}

/** Returns the names of a map alone, as failed rows keep them. */
export function namesOf(map: FieldMap): Readonly<Record<string, string | null>> {
  const names = Object.keys(map).filter(
    (name) => name !== otherFields && !(name === constantsName && listConstants(map).length > 0),
  );
  return Object.fromEntries(names.map((name) => [name, findTarget(map, name).target]));
}

const isoPattern = String.raw`\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d([.,]\d{1,9})?)?( ?(Z|UTC|[+-]\d\d(:?\d\d)?))?)?`;
const offsetPattern = '(Z|UTC|[+-][0-9]{2}(:?[0-9]{2})?)$';

/** SQL of an ISO 8601 time as Unix microseconds; without an offset it is UTC. */
function isoSql(cell: string): string {
  const text = `regexp_replace(replace(${cell}, ',', '.'), '^(.{10})[Tt]', '\\1 ')`;
  const zoned = `regexp_replace(regexp_replace(${text}, ' ?(Z|UTC)$', '+00', 'i'), ' ?([+-][0-9]{2}):?([0-9]{2})$', '\\1:\\2')`;
  return `CASE WHEN NOT regexp_full_match(${cell}, ${sqlText(isoPattern)}, 'i') THEN NULL
    WHEN strlen(${cell}) > 16 AND regexp_matches(${cell}, ${sqlText(offsetPattern)}, 'i') THEN epoch_us(TRY_CAST(${zoned} AS TIMESTAMPTZ))
    ELSE epoch_us(TRY_CAST(${text} AS TIMESTAMP)) END`;
}

/** SQL of a Unix time as seconds; the unit by the number of digits, unless it is given. */
function unixSql(cell: string, digits: number | undefined): string {
  const whole = `split_part(${cell}, '.', 1)`;
  const cut = (count: number): string => (count === 0 ? whole : `left(${whole}, -${count})`);
  const byLength = `CASE WHEN strlen(${whole}) <= 11 THEN ${cut(0)} WHEN strlen(${whole}) <= 14 THEN ${cut(3)} WHEN strlen(${whole}) <= 17 THEN ${cut(6)} ELSE ${cut(9)} END`;
  const seconds = `TRY_CAST(nullif(${digits === undefined ? byLength : cut(digits)}, '') AS BIGINT)`;
  return `CASE WHEN regexp_full_match(${cell}, '[0-9]{1,19}(\\.[0-9]*)?') THEN ${seconds} END`;
}

const unitDigits: Readonly<Record<string, number>> = { s: 0, ms: 3, us: 6, ns: 9 };

const seconds = (micros: string): string => `(${micros}) // 1000000`;

function timeSql(cell: string, format: string): string {
  if (format === 'auto') return `coalesce(${unixSql(cell, undefined)}, ${seconds(isoSql(cell))})`;
  if (format === 'iso') return seconds(isoSql(cell));
  const digits = unitDigits[format];
  return digits === undefined ? seconds(`epoch_us(try_strptime(${cell}, ${sqlText(format)}))`) : unixSql(cell, digits);
}

/** Digits of a number that its factor multiplies exactly. */
const scaledNumber = String.raw`-?\d{1,14}(\.\d{1,10})?`;

/** Applies a rule to the text of a cell. */
function ruleSql(cell: string, { time, factor, country }: FieldRule): string {
  if (time !== undefined)
    return `CASE WHEN ${cell} IS NOT NULL THEN coalesce(CAST(${timeSql(cell, time)} AS VARCHAR), ${cell} || ' (no time)') END`;
  if (factor !== undefined)
    return `CASE WHEN regexp_full_match(${cell}, ${sqlText(scaledNumber)}) THEN CAST(CAST(${cell} AS DECIMAL(24,10)) * CAST(${factor} AS DECIMAL(12,6)) AS VARCHAR) ELSE ${cell} || ' (no number)' END`;
  if (country !== undefined) return `CASE upper(${cell}) WHEN 'UK' THEN 'GB' ELSE upper(${cell}) END`;
  return cell;
}

interface RuledCell {
  readonly kind: 'text' | 'number' | 'list';
  readonly sql: string;
  readonly rule?: FieldRule;
}

/** Returns a cell with its rule applied. Numbers of Parquet are read as texts. */
export function applyRule<T extends RuledCell>(cell: T): T {
  const { rule, kind, sql } = cell;
  if (rule === undefined || kind === 'list' || (rule.time ?? rule.factor ?? rule.country) === undefined) return cell;
  return { ...cell, kind: 'text', sql: ruleSql(`CAST(${sql} AS VARCHAR)`, rule) };
}
