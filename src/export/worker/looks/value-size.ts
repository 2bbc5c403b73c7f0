import { datasets } from '../../../datasets/dataset.ts';
import { getSelector, type Selector } from '../../../datasets/dictionaries.ts';
import { eventFields } from '../../../datasets/event-fields.ts';
import type { FieldSchema } from '../../../datasets/field-schema.ts';
import type { SelectorPlan } from '../selector-sql.ts';
import type { ColumnFacts, RowGroup } from './row-groups.ts';
import { hasEscaped } from './text-lengths.ts';

/** What sizes are known by beside the row groups. */
export interface SizePlan extends SelectorPlan {
  /** Of the longest title that was loaded, bytes. */
  readonly longestTitle: number;
}

/** How many bytes of UTF-8 the values of a column have in a row group, before a format adds its quotes. */
export interface ValueSize {
  /** Of one value that is not NULL. `most` may be Infinity. */
  readonly least: number;
  readonly most: number;
  readonly mean: number;
  /** Of all values of the group. */
  readonly total?: { readonly least: number; readonly most: number };
  /** Values that are NULL, at most. */
  readonly nulls: number;
  /** Texts may have to be quoted and escaped; numbers and dates never. */
  readonly isText: boolean;
  /** Texts without anything to escape. */
  readonly isPlain?: boolean;
  /** Lists: how many items all of them have, at most. `least`, `most`, `mean` and `total` are then those of items. */
  readonly items?: number;
}

const nothing = (rows: number): ValueSize => ({ least: 0, most: 0, mean: 0, nulls: rows, isText: false });

function fixed(least: number, most: number, nulls: number): ValueSize {
  return { least, most, mean: (least + most) / 2, nulls, isText: false };
}

/** Bytes of a character, at most. */
const characterBytes = 4;
/** Characters of the name or the value of an event's parameter, at most. */
const parameterCharacters = 255;

/** The longest value of each column of texts, bytes, by the fields of all datasets; a column without is unbounded. */
const longestOf: ReadonlyMap<string, number> = (() => {
  const longest = new Map<string, number>();
  const schemas: FieldSchema[] = [
    ...eventFields.map(({ schema }) => schema),
    ...[...datasets.values()].flatMap(({ fields }) => fields.map(({ schema }) => schema)),
  ];
  for (const { 'x-column': column, maxLength } of schemas) {
    const most = typeof maxLength === 'number' ? maxLength * characterBytes : Infinity;
    longest.set(column, Math.max(longest.get(column) ?? 0, most));
  }
  return longest;
})();

const bytesOf = (text: string): number => Buffer.byteLength(text);
const nullsOf = ({ rows }: RowGroup, { nulls = rows }: ColumnFacts): number => nulls;

/** One of some texts, at least one; as numbers they get no quotes. */
function oneOf(texts: readonly string[], nulls: number, isText = true): ValueSize {
  const sizes = texts.map(bytesOf);
  const size = fixed(Math.min(...sizes), Math.max(...sizes), nulls);
  return isText ? { ...size, isText, isPlain: !texts.some(hasEscaped) } : size;
}

/** Digits of whole numbers between two bounds. */
function digits(min: bigint, max: bigint, nulls: number): ValueSize {
  const lengths = [String(min).length, String(max).length];
  const least = min >= 0n ? String(min).length : max < 0n ? String(max).length : 1;
  return fixed(least, Math.max(...lengths), nulls);
}

/** How many bytes all texts between two bounds begin with, and one where none of them is empty. */
function sharedBytes(min: ColumnFacts['min'], max: ColumnFacts['max']): number {
  if (typeof min !== 'string' || typeof max !== 'string' || min === '') return 0;
  const [first, last] = [Buffer.from(min), Buffer.from(max)];
  const other = first.findIndex((byte, index) => byte !== last[index]);
  return Math.max(1, other === -1 ? first.length : other);
}

/** What is known of the sizes of texts; `allowed`: of one value by its field. */
function textSize(
  { min, max, isExact, chunk, nulls, lengths }: ColumnFacts,
  { rows, isOwn }: Pick<RowGroup, 'rows' | 'isOwn'>,
  allowed: number,
): ValueSize {
  const values = (chunk?.values ?? rows) - (nulls ?? 0);
  const absent = nulls ?? rows;
  if (isExact && typeof min === 'string' && typeof max === 'string' && (min === max || chunk?.distinct === 2))
    return oneOf([min, max], absent);
  if (lengths !== undefined && nulls !== undefined) {
    const { least, most, total, isPlain } = lengths;
    const mean = Math.min(most, Math.max(least, total / Math.max(1, values)));
    return { least, most, mean, total: { least: total, most: total }, nulls, isText: true, isPlain };
  }
  const [least, longest] = [lengths?.least ?? sharedBytes(min, max), lengths?.most ?? allowed];
  const unbounded = { least, most: longest, mean: Math.min(longest, 32), nulls: absent, isText: true };
  if (chunk === undefined || values <= 0) return unbounded;
  const { bytes, encoding, distinct, dictionary } = chunk;
  if (encoding === 'plain') {
    // Each text lies behind four bytes of its length. What else pages have: headers, and which values are NULL.
    const texts = Math.max(0, bytes - 4 * values);
    const besides = chunk.values / 4 + 4096 + bytes / 16;
    const most = Math.min(texts, values * longest);
    const total = { least: nulls === undefined ? 0 : Math.max(values * least, texts - besides), most };
    const ofOne = Math.max(0, Math.min(longest, texts - (values - 1) * least));
    return {
      least,
      most: ofOne,
      mean: Math.min(most, Math.max(total.least, texts)) / values,
      total,
      nulls: absent,
      isText: true,
    };
  }
  const different = dictionary?.values ?? distinct ?? 0;
  if (encoding === 'dictionary' && different > 0) {
    const texts = Math.min(dictionary?.textBytes ?? Math.max(0, bytes - 4 * different), different * longest);
    const ofOne = Math.max(0, Math.min(longest, texts - (different - 1) * least));
    // Each text of the dictionary is there once at least.
    const isKnown = dictionary !== undefined && isOwn && nulls !== undefined && values >= different;
    const total = {
      least: isKnown ? texts + (values - different) * least : 0,
      most: texts + Math.max(0, values - different) * ofOne,
    };
    // Which bytes of the pages are texts, and which say what row has which, only the dictionary tells: the two bounds are
    // texts of it.
    const ofBounds = [min, max].map((bound) => (typeof bound === 'string' ? bytesOf(bound) : 16));
    const guess =
      dictionary === undefined ? ofBounds.reduce((sum, size) => sum + size, 0) / ofBounds.length : texts / different;
    return { least, most: ofOne, mean: Math.min(ofOne, guess), total, nulls: absent, isText: true };
  }
  return { ...unbounded, most: encoding === 'dictionary' ? Math.min(longest, bytes) : longest };
}

function columnSize(column: string, { columnType, type }: Selector, group: RowGroup): ValueSize {
  const facts = group.column(column);
  const { min, max } = facts;
  const nulls = nullsOf(group, facts);
  if (nulls === group.rows && facts.nulls !== undefined) return nothing(group.rows);
  const kind = columnType ?? (type === 'integer' ? 'BIGINT' : 'VARCHAR');
  if (kind === 'VARCHAR') {
    const longest = group.isOwn ? (longestOf.get(column) ?? Infinity) : Infinity;
    return textSize(facts, group, longest);
  }
  if (typeof min === 'bigint' && typeof max === 'bigint') return digits(min, max, nulls);
  if (kind === 'BIGINT' || kind === 'SMALLINT') return fixed(1, 20, nulls);
  if (kind === 'DATE') return { ...fixed(8, 20, nulls), mean: 10 };
  // Decimals of 38 digits with sign, point and a zero before it; a double has fewer.
  return { ...fixed(1, 42, nulls), mean: 6 };
}

const secondsOf = (moment: bigint, beyond: bigint): bigint => moment / 1_000_000n + beyond;

function secondsSize(column: string, group: RowGroup): ValueSize {
  const facts = group.column(column);
  const { min, max } = facts;
  const nulls = nullsOf(group, facts);
  if (typeof min !== 'bigint' || typeof max !== 'bigint') return { ...fixed(1, 20, nulls), mean: 10 };
  return digits(secondsOf(min, -1n), secondsOf(max, 1n), nulls);
}

function listSize(column: string, part: 'key' | 'value', group: RowGroup, { dataset }: SelectorPlan): ValueSize {
  const facts = group.column(`${column}, key_value, ${part}`);
  const { chunk } = facts;
  if (chunk === undefined) return { ...nothing(0), most: facts.nulls === group.rows ? 0 : Infinity, items: Infinity };
  const items = chunk.values - (facts.nulls ?? 0);
  // What is NULL here is a row without a list, or with an empty one: its cell is an empty list.
  const longest = group.isOwn && !dataset.isLoadable ? parameterCharacters * characterBytes : Infinity;
  return { ...textSize(facts, { rows: items, isOwn: group.isOwn }, longest), nulls: 0, items };
}

/** A size where some of the values are NULL, as far as anybody knows. */
function perhaps(size: ValueSize, rows: number): ValueSize {
  const { total } = size;
  return { ...size, nulls: rows, ...(total === undefined ? {} : { total: { least: 0, most: total.most } }) };
}

/** A title by a dictionary or of those that were loaded, or where there is none what the row itself says. */
function titled(own: ValueSize, dictionary: readonly string[], longestTitle: number): ValueSize {
  const most = Math.max(own.most, longestTitle, ...dictionary.map(bytesOf));
  return { least: 0, most, mean: Math.min(most, 16), nulls: own.nulls, isText: true };
}

function sourceSize({ source, ...selector }: Selector, plan: SizePlan, group: RowGroup): ValueSize {
  const { rows } = group;
  const isText = selector.type === 'string';
  if ('seconds' in source) return secondsSize(source.seconds, group);
  if ('zoneDate' in source) return { ...fixed(8, 20, nullsOf(group, group.column(source.zoneDate))), mean: 10 };
  if ('mapKeys' in source) return listSize(source.mapKeys, 'key', group, plan);
  if ('mapValues' in source) return listSize(source.mapValues, 'value', group, plan);
  if ('constant' in source) return oneOf([source.constant], 0, isText);
  if ('derived' in source) return 'derive' in plan.event ? { ...fixed(1, 20, rows), mean: 2 } : nothing(rows);
  if ('app' in source) {
    const facts = plan.apps.map((app) => app[source.app]);
    const texts = facts.flatMap((fact) => (fact === undefined ? [] : [String(fact)]));
    return texts.length === 0 ? nothing(rows) : oneOf(texts, texts.length === facts.length ? 0 : rows, isText);
  }
  const { column, titleOf, dictionary } = source;
  const isThere = plan.dataset.columns.some(({ name }) => name === column);
  const own = isThere ? columnSize(column, { source, ...selector }, group) : nothing(rows);
  const isLoaded = plan.titles?.has(selector.name) === true;
  if (titleOf === undefined || (dictionary === undefined && !isLoaded)) return own;
  return titled(own, Object.values(dictionary ?? {}), isLoaded ? plan.longestTitle : 0);
}

/** The sizes of a selector's values in a row group: what selector-sql.ts makes of it, by statistics alone. */
export function valueSize(name: string, plan: SizePlan, group: RowGroup): ValueSize {
  const selector = getSelector(name);
  const { kinds, source } = selector;
  const { dataset, event } = plan;
  const kind = 'kind' in event ? event.kind : undefined;
  if (dataset.isLoadable && 'constant' in source) return nothing(group.rows);
  const isOfKinds = !dataset.isLoadable && kinds !== undefined;
  if (isOfKinds && kind !== undefined && !kinds.includes(kind)) return nothing(group.rows);
  const size = sourceSize(selector, plan, group);
  return isOfKinds && kind === undefined ? perhaps(size, group.rows) : size;
}
