import { describe, expect, it } from 'vitest';
import { compileDataset, datasets, events, getKind, getMethod, importMethods } from '../../../src/datasets/dataset.ts';
import { eventColumns } from '../../../src/datasets/event-fields.ts';
import { parsePartitionPath, partitionPath } from '../../../src/datasets/partition.ts';
import { partitionSql, partitionsSql } from '../../../src/lake/sql/literals.ts';
import { parsePipeline } from '../../../src/datasets/pipeline-file.ts';

const good = {
  table: 'events',
  description: 'Events.',
  kinds: { login: 'schemas/events/login.json' },
  methods: { login: { kind: 'login' }, loginBatch: { kind: 'login', batch: true } },
  sealing: { partitionBy: ['kind', 'date'], sortBy: ['id_app'] },
  exports: { userAuthorisations: { kind: 'login', requires: 'user' } },
};

const keyed = { login: { schema: 's', key: ['id'] } };

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
    [{ kinds: { login: { schema: 1 } } }, 'kinds.login'],
    [{ kinds: { login: { schema: 's', allowsDeviceOnly: 'yes' } } }, 'kinds.login.allowsDeviceOnly'],
    [{ kinds: { login: { schema: 's', key: ['customUserId'] } } }, 'kinds.login.key'],
    [{ kinds: { login: { schema: 's', values: { isTest: 0 } } } }, 'kinds.login.values'],
    [{ rows: 's', kinds: { login: { schema: 's', key: ['id'], values: { isTest: null } } } }, 'kinds.login.values'],
    [{ rows: 's' }, 'kinds.login.key must name the fields by which a row that is sent again is known'],
    [{ methods: { login: { kind: 'logout' } } }, 'methods.login'],
    [{ methods: { login: { kind: 'login', batch: 'yes' } } }, 'methods.login.batch'],
    [{ sealing: { partitionBy: [], sortBy: ['id_app'] } }, 'sealing'],
    [{ sealing: { partitionBy: ['kind', 'kind'], sortBy: ['id_app'] } }, 'sealing'],
    [{ exports: { a: { kind: 'toString' } } }, 'exports.a'],
    [{ exports: { a: { kind: 'login', requires: 'luck' } } }, 'exports.a.requires'],
    [{ exports: { a: { kind: 'login', require: 'user' } } }, 'exports.a.require is unknown'],
    [{ exports: { 'a.b': { kind: 'login' } } }, 'exports.a.b'],
    [{ sort: ['id_app'] }, 'sort is unknown'],
    [{ rows: 's', kinds: keyed }, 'exports.userAuthorisations must have no kind'],
    [{ rows: 's', kinds: keyed, exports: { hits: { where: { hitType: 1.5 } } } }, 'exports.hits.where'],
  ])('A pipeline file is refused with the name of the file and the member: %j', (wrong, member) => {
    expect(() => parsePipeline('p.json', { ...good, ...wrong })).toThrow(`p.json: ${member}`);
  });

  it.each([
    [{ partitionBy: ['kind'], sortBy: ['no_such'] }, 'sortBy names no_such'],
    [{ partitionBy: ['custom_user_id'], sortBy: ['id_app'] }, 'partitionBy names custom_user_id'],
  ])('A pipeline file is refused where it names a column that does not exist or may be empty: %j', (sealing, text) => {
    expect(() => compileDataset(parsePipeline('p.json', { ...good, sealing }), eventColumns)).toThrow(text);
  });
});

describe('an import method of a table of rows', () => {
  it('A method of payments is declared as those of events, and found among all', () => {
    expect(getMethod('customRevenueBatch')).toEqual({ kind: 'revenue', batch: true });
    expect(getKind('revenue')).toEqual({
      schema: 'schemas/events/revenue.json',
      allowsDeviceOnly: true,
      key: ['idTransaction'],
      values: { isVerified: 0, idPurchaseType: 6, isTest: 0, isTrial: 0 },
    });
    expect(getKind('login')).toEqual({
      schema: 'schemas/events/login.json',
      allowsDeviceOnly: false,
      key: [],
      values: {},
    });
    expect([...importMethods.keys()]).toHaveLength(8);
  });

  it('A kind whose values name no field of the rows is refused', () => {
    const kinds = { login: { schema: 's', key: ['idTransaction'], values: { no_such: 1 } } };
    const wrong = parsePipeline('p.json', { ...good, rows: 's', exports: {}, kinds });
    const fields = datasets.get('payments')?.fields;
    expect(() => compileDataset(wrong, eventColumns, fields)).toThrow('kinds.login.values names no_such');
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

  it('A partition is selected with quoted values, and an empty one selects nothing', () => {
    const partition = { kind: "it's", date: '2026-01-31' };
    expect(partitionsSql(events, [])).toBe('false');
    expect(partitionsSql(events, [partition])).toBe("(kind, date) IN (('it''s'::VARCHAR, '2026-01-31'::DATE))");
    expect(partitionSql(events, partition)).toBe("kind = 'it''s'::VARCHAR AND date = '2026-01-31'::DATE");
  });
});
