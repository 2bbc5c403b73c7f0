import { readdirSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { assertOutputWritable } from '../../../src/client/export-output.ts';
import { defaultOutput, requestOptions, toRequest, type GivenRequest } from '../../../src/cli/export-request.ts';
import { testFolder } from '../../helpers/folder.ts';

const nowMs = Date.parse('2026-06-02T12:00:00Z');

/** Values of a command line, with the default of each other option. */
function given(options: Partial<GivenRequest>): GivenRequest {
  const fallbacks = Object.entries(requestOptions).map(([name, { default: fallback }]) => [name, fallback]);
  return { ...(Object.fromEntries(fallbacks) as GivenRequest), timezone: 'UTC', ...options };
}

const asked = (output: string) => toRequest('customEvents', given({}), output, nowMs).parameters;

const namesOf = (where: GivenRequest['where']): readonly string[] =>
  toRequest('payments', given({ where, sinceVersion: '8-1' }), undefined, nowMs).parameters.map(([name]) => name);

const selectorsOf = (options: Partial<GivenRequest>): string | undefined =>
  toRequest('customEvents', given(options), undefined, nowMs).parameters.find(([name]) => name === 'selectors')?.[1];

const timesOf = (name: string): string[] => {
  const { parameters } = toRequest('customEvents', given({}), name, nowMs);
  const selectors = new Map(parameters.map(([key, value]) => [key, value])).get('selectors') ?? '';
  return selectors.split(',').filter((selector) => selector.endsWith('Event'));
};

describe('an export request of the command line', () => {
  it.each([
    ['sinceVersion=8-1', '--since-version'],
    ['asOf=8-1', '--as-of'],
    ['selectors=eventId', '--selectors'],
  ])('A parameter with its own option is rejected with the name of that option: --where %s', (pair, option) => {
    const { parse } = requestOptions.where;
    expect(() => parse?.(pair, '--where')).toThrow(`use ${option}`);
    expect(parse?.('order=time', '--where')).toEqual([['order', 'time']]);
  });

  it('A request for the erasure list has no selectors, since the list has its own columns', () => {
    expect(namesOf([['erasures', '1']])).not.toContain('selectors');
    expect(namesOf([])).toContain('selectors');
  });

  it('The ids of a person become filters, with their commas and backslashes escaped', () => {
    const { parse } = requestOptions.person;
    const person = ['customUserId=a,b\\c=d', 'idfa=x'].flatMap((pair) => parse?.(pair, '--person') ?? []);
    expect(toRequest('hits', given({ person }), undefined, nowMs).parameters.slice(-2)).toEqual([
      ['customUserId', String.raw`a\,b\\c=d`],
      ['idfa', 'x'],
    ]);
    expect(() => parse?.('u-1', '--person')).toThrow('must be NAME=ID');
    expect(() => parse?.('idAd=1', '--person')).toThrow('use --where for other parameters');
  });

  it('Columns of parameters replace the selectors of all parameters, unless these are named', () => {
    const [plain = '', withColumns = ''] = [selectorsOf({}), selectorsOf({ columns: 'params' })];
    expect(plain).toBe(`${withColumns},params.name,params.value`);
    expect(selectorsOf({ columns: 'params', selectors: 'params.name' })).toBe('params.name');
  });

  it('An IANA alias is converted to the time zone of the service', () => {
    const { parameters, days } = toRequest(
      'customEvents',
      given({ timezone: 'Asia/Kolkata', from: 'today' }),
      undefined,
      Date.parse('2026-06-02T20:00:00Z'),
    );
    expect([parameters.find(([name]) => name === 'timezone')?.[1], days?.from]).toEqual([
      'Asia/Calcutta',
      '2026-06-03',
    ]);
    expect(() => toRequest('customEvents', given({ timezone: 'Moscow' }), undefined, nowMs)).toThrow(
      /must be a time zone/,
    );
  });

  it('A file name of an unknown format and a missing folder are rejected before the export is created', async () => {
    const folder = testFolder();
    const at = (name: string): string => path.join(folder, name);
    for (const name of ['x.xls', 'x.json', 'x.csv.zip'])
      await expect(assertOutputWritable(at(name)), name).rejects.toThrow(/is not an export format/);
    for (const name of ['none/x.csv', 'none/deep/'])
      await expect(assertOutputWritable(at(name)), name).rejects.toThrow(`folder ${at('none')} does not exist`);
    for (const name of ['x.csv', 'x.parquet', 'x.jsonl.zst', 'x.xlsx', 'x', 'x.2026-05-01', 'x.txt', 'new/', ''])
      await expect(assertOutputWritable(at(name)), name).resolves.toBeUndefined();
    expect(readdirSync(folder)).toEqual([]);
  });

  it('The selectors of a workbook have a time that spreadsheets know, and those of other files Unix seconds', () => {
    expect(timesOf('x.xlsx')).toEqual(['dateTimeEvent']);
    expect(timesOf('x.csv')).toEqual(['tsEvent']);
  });

  it.each([
    ['none', 'customEvents-2026-06-01.csv'],
    ['gzip', 'customEvents-2026-06-01.csv.gz'],
    ['zstd', 'customEvents-2026-06-01.csv.zst'],
  ] as const)('A default file name has the extension of its compression: %s', (compression, name) => {
    const request = toRequest('customEvents', given({ compression }), undefined, nowMs);
    expect(defaultOutput('customEvents', '1', request)).toBe(name);
  });

  it.each([
    ['zstd', 'x.csv'],
    ['gzip', 'x.csv.zst'],
  ] as const)(
    'A compression of %s that conflicts with the name %s is rejected before the export is created',
    (compression, output) => {
      expect(() => toRequest('customEvents', given({ compression }), output, nowMs)).toThrow(
        /conflicts with the file name/,
      );
    },
  );

  it('A file name sets the compression, and a folder does not', () => {
    expect(asked('x.jsonl.zst')).toContainEqual(['compression', 'zstd']);
    expect(asked('x.csv').map(([name]) => name)).not.toContain('compression');
    expect(asked('x/').map(([name]) => name)).not.toContain('compression');
  });
});
