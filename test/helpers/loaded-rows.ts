import { datasets, type Dataset } from '../../src/datasets/dataset.ts';
import type { FieldSchema } from '../../src/datasets/field-schema.ts';
import { createRandom, hostileTexts } from './export-events.ts';

/** A row of an operator's file: fields under the names of their selectors. */
export type LoadedRow = Readonly<Record<string, unknown>>;

type Random = (below: number) => number;

const currencies = ['USD', 'EUR', 'JPY', 'KZT'];
const isoCodes = ['DE', 'FR', 'BR'];
/** Texts that CSV, JSON and Parquet can all represent: no NUL. */
const texts = [...hostileTexts.filter((text) => !text.includes('\u0000')), 'plain', 'Зима', '🐉'];

const pick = <T>(values: readonly T[], random: Random): T => values[random(values.length)] as T;

/** Returns a text for a field, within its limits. */
function textOf(schema: FieldSchema, random: Random): string {
  if (schema['enum'] !== undefined) return pick(schema['enum'] as string[], random);
  if (schema['pattern'] === '^[A-Z]{3}$') return pick(currencies, random);
  if (schema['pattern'] === '^[A-Z]{2}$') return pick(isoCodes, random);
  const limit = schema.maxLength ?? 1024;
  const least = schema.minLength ?? 1;
  // Device identifiers have a fixed length.
  if (least > 2) return `t${random(40)}`.padEnd(least, 'x');
  const fitting = texts.filter((text) => Array.from(text).length <= limit && text !== '');
  return random(3) === 0 ? pick(fitting, random) : `t${random(40)}`.slice(0, limit);
}

function integerOf(name: string, schema: FieldSchema, random: Random): number {
  if (schema['enum'] !== undefined) return pick(schema['enum'] as number[], random);
  // Ids of the dictionaries: known ones, and for mediators an unknown one.
  if (name === 'idCountry') return pick([188, 38, 16, 25], random);
  if (name === 'idAdMediator') return random(5);
  if (schema['x-column-type'] === 'TIMESTAMPTZ') return 1_740_000_000 + random(10_000_000);
  const maximum = schema.maximum ?? 100;
  return Math.min(maximum, random(8) === 0 ? random(2_000_000_000) : random(4));
}

function decimalOf(type: string, random: Random): string {
  const scale = Number(/,(\d+)\)/.exec(type)?.[1] ?? 0);
  const digits = String(random(2_000_000_000)).padStart(scale + 1, '0');
  const text = scale === 0 ? digits : `${digits.slice(0, -scale)}.${digits.slice(-scale)}`;
  return random(5) === 0 && scale > 0 ? `-${text}` : text;
}

function valueOf(name: string, schema: FieldSchema, random: Random): unknown {
  const type = schema['x-column-type'];
  // Private, so that it has no country.
  if (name === 'ipv4') return `10.0.${random(4)}.${random(200)}`;
  if (name === 'ipv6') return `fd00::${random(9000)}`;
  if (name === 'userAgent') return `tool ${random(9)}`;
  if (name === 'hwid' || name === 'sezamUserId') return String(1 + random(2_000_000_000));
  if (type.startsWith('DECIMAL')) return decimalOf(type, random);
  if (type === 'DOUBLE') return random(40) / 4;
  return schema.type === 'integer' || schema.oneOf !== undefined
    ? integerOf(name, schema, random)
    : textOf(schema, random);
}

/** Two fields of one column: a row has one of them. */
const sameColumn = 'advertisingId';
const apps = [11, 11, 12, 13, 14, 91];

function makeRow({ fields, table }: Dataset, index: number, random: Random): LoadedRow {
  const row: Record<string, unknown> = {
    tsEvent: 1_746_000_000 + random(4_000_000),
    idApp: pick(apps, random),
  };
  if (random(2) === 0) row['eventId'] = `${table}-${index}`;
  for (const { name, schema } of fields) {
    // Each field is present in some rows and missing in others.
    if (name === sameColumn || (index !== 0 && random(3) === 0)) continue;
    row[name] = valueOf(name, schema, random);
  }
  if (random(2) === 0) {
    const names = ['level', "it's", 'a\\b'].slice(0, 1 + random(3));
    row['params.name'] = names;
    row['params.value'] = names.map((name, place) => `${name}\n${place}`);
  }
  return row;
}

/** Creates rows of a dataset, the same for the same seed; each field of its schema has a value in some. */
export function makeLoadedRows(dataset: Dataset, count: number, seed: number): LoadedRow[] {
  const random = createRandom(seed);
  return Array.from({ length: count }, (_, index) => makeRow(dataset, index, random));
}

/** The datasets that files can be loaded into. */
export const loadableDatasets: readonly Dataset[] = [...datasets.values()].filter(({ isLoadable }) => isLoadable);
