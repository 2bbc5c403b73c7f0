import { readFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { FieldSchema } from '../../../../src/datasets/field-schema.ts';
import { openDuckdb, type Duckdb } from '../../../../src/lake/sql/duckdb.ts';
import { listSql, valueSql } from '../../../../src/admin/load/value-sql.ts';

interface Cases {
  readonly schemas: Readonly<Record<string, object>>;
  /** Texts and their stored values, by schema. */
  readonly good: Readonly<Record<string, Readonly<Record<string, string>>>>;
  /** Texts and the reasons why they are bad, by schema. */
  readonly bad: Readonly<Record<string, Readonly<Record<string, string>>>>;
  readonly lists: Readonly<Record<string, readonly string[] | null>>;
}

const cases = JSON.parse(
  readFileSync(path.resolve(import.meta.dirname, '../../../fixtures/load/values.json'), 'utf8'),
) as Cases;
let duckdb: Duckdb;

beforeAll(async () => {
  duckdb = await openDuckdb({ memoryMb: 256, threads: 1 });
});

afterAll(() => duckdb.close());

/** Returns the stored value of a text, or why it is bad. */
async function judge(schemaName: string, text: string): Promise<unknown> {
  const schema = { description: '', 'x-column': 'c', ...cases.schemas[schemaName] } as FieldSchema;
  const sql = valueSql('field', schema, 't', 'q', 'text');
  const checks = sql.toChecks('t', 'v').map((rowCheck) => `WHEN ${rowCheck.sql} THEN '${rowCheck.reason}'`);
  const [row] = await duckdb.rows(
    `SELECT CASE WHEN fault IS NULL THEN CAST(${sql.toStored('v')} AS VARCHAR) ELSE fault END AS verdict
     FROM (SELECT *, CASE ${checks.join(' ')} END AS fault FROM (SELECT *, ${sql.value} AS v FROM (SELECT *, ${sql.cast ?? 'NULL'} AS q FROM (SELECT CAST($1 AS VARCHAR) AS t))))`,
    [text],
  );
  return row?.['verdict'];
}

/** Validates each text of some cases. */
async function judgeAll(group: Cases['good']): Promise<Cases['good']> {
  const judged: Record<string, Record<string, string>> = {};
  for (const [schema, texts] of Object.entries(group)) {
    judged[schema] = {};
    for (const text of Object.keys(texts)) judged[schema][text] = String(await judge(schema, text));
  }
  return judged;
}

describe('the SQL of a field', () => {
  it('A valid text of a field is stored exactly', async () => {
    expect(await judgeAll(cases.good)).toEqual(cases.good);
  });

  it('An invalid text of a field is bad, for the reason that a person would give', async () => {
    expect(await judgeAll(cases.bad)).toEqual(cases.bad);
  });

  it('A list is read as exports write it and as JSON, and any other text is invalid', async () => {
    const read: Record<string, unknown> = {};
    for (const text of Object.keys(cases.lists)) {
      const [row] = await duckdb.rows(`SELECT ${listSql('t')} AS list FROM (SELECT CAST($1 AS VARCHAR) AS t)`, [text]);
      read[text] = row?.['list'];
    }
    expect(read).toEqual(cases.lists);
  });
});
