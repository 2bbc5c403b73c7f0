import { describe, expect, it } from 'vitest';
import { compileDataset } from '../../../src/datasets/dataset.ts';
import { eventColumns } from '../../../src/datasets/event-fields.ts';
import { parsePartitionPath, partitionPath } from '../../../src/datasets/partition.ts';
import { partitionsSql } from '../../../src/lake/sql/partition-sql.ts';
import { parsePipeline, type PipelineFile } from '../../../src/datasets/pipeline-file.ts';

const good = {
  table: 'events',
  description: 'Events.',
  kinds: { login: 'schemas/events/login.json' },
  methods: { login: { kind: 'login' }, loginBatch: { kind: 'login', batch: true } },
  sealing: { partitionBy: ['kind', 'date'], sortBy: ['id_app'] },
  exports: { userAuthorisations: { kind: 'login', requires: 'user' } },
};

describe('a pipeline file', () => {
  it('A pipeline file is compiled with its methods, folders and export events', () => {
    const dataset = compileDataset(parsePipeline('p.json', good), eventColumns);
    expect([...dataset.methods]).toEqual([
      ['login', { kind: 'login', batch: false }],
      ['loginBatch', { kind: 'login', batch: true }],
    ]);
    expect(dataset.partitionBy.map(({ name }) => name)).toEqual(['kind', 'date']);
    expect(dataset.exports.get('userAuthorisations')).toEqual({ kind: 'login', requires: 'user' });
  });

  it.each([
    [{ table: 'Events' }, 'table'],
    [{ table: 'failed' }, 'table'],
    [{ kinds: {} }, 'kinds'],
    [{ methods: { login: { kind: 'logout' } } }, 'methods.login'],
    [{ methods: { login: { kind: 'login', batch: 'yes' } } }, 'methods.login.batch'],
    [{ sealing: { partitionBy: [], sortBy: ['id_app'] } }, 'sealing'],
    [{ sealing: { partitionBy: ['kind', 'kind'], sortBy: ['id_app'] } }, 'sealing'],
    [{ exports: { a: { kind: 'toString' } } }, 'exports.a'],
    [{ exports: { a: { kind: 'login', requires: 'luck' } } }, 'exports.a.requires'],
  ])('A pipeline file is refused with the name of the file and the member: %j', (wrong, member) => {
    expect(() => parsePipeline('p.json', { ...good, ...wrong })).toThrow(`p.json: ${member}`);
  });

  it.each([
    [{ partitionBy: ['kind'], sortBy: ['no_such'] }, 'sortBy names no_such'],
    [{ partitionBy: ['custom_user_id'], sortBy: ['id_app'] }, 'partitionBy names custom_user_id'],
  ])('A pipeline file is refused where it names a column that does not exist or may be empty: %j', (sealing, text) => {
    expect(() => compileDataset({ ...good, sealing } as unknown as PipelineFile, eventColumns)).toThrow(text);
  });
});

describe('a partition', () => {
  it('A partition is the same after its path was parsed', () => {
    for (const kind of ['login', 'a/b=c', "it's"]) {
      const partition = { kind, date: '2026-01-31' };
      expect(parsePartitionPath(`${partitionPath(partition)}/file.parquet`)).toEqual(partition);
    }
    expect(parsePartitionPath('_young/file.parquet')).toBeUndefined();
  });

  it('A partition is selected with quoted values, and nothing is selected of no partition', () => {
    expect(partitionsSql([])).toBe('false');
    expect(partitionsSql([{ kind: "it's", date: '2026-01-31' }])).toBe(
      "(kind, date) IN (('it''s'::VARCHAR, '2026-01-31'::DATE))",
    );
  });
});
