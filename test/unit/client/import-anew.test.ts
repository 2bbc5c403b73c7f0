import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import type { BatchResponse } from '../../../src/client/import-area.ts';
import { importFile } from '../../../src/client/import-file.ts';
import type { ImportOutcome } from '../../../src/client/run-import.ts';
import { statePath, type ImportOptions } from '../../../src/client/import-state.ts';
import { createRandom } from '../../../src/demo/random.ts';
import { testFolder } from '../../helpers/folder.ts';
import { createModel, emptyState, importOptions } from '../../helpers/import-model.ts';

const model = createModel(createRandom(1), emptyState, true);
const silent = (): void => undefined;

/** A service that stores every good event, without deduplication by key. */
function createTaker() {
  const taken: Record<string, unknown>[] = [];
  const judge = (body: string): BatchResponse => {
    const events = JSON.parse(body) as Record<string, unknown>[];
    const faults = events.flatMap(({ customEventName }, index) =>
      customEventName === 'good' ? [] : [{ index, field: 'customEventName', reason: 'is bad', hint: undefined }],
    );
    if (faults.length > 0) return { state: 'rejected', validationErrors: faults };
    taken.push(...events);
    return { state: 'stored', unknownParameters: [] };
  };
  const area = {
    ...model.service,
    postBatch: async (_: string, body: string) => judge(body),
    checkBatch: async (): Promise<BatchResponse> => ({ state: 'stored', unknownParameters: [] }),
    findKey: async () => ({ isKnown: false, isInLake: false, receivedAtMs: undefined }),
  };
  return { area, taken };
}

const names = ['good', 'bad'] as const;
const csvOf = (...events: readonly (typeof names)[number][]): string =>
  ['customUserId,customEventName,what', ...events.map((name, index) => `u-${index},${name},good`)].join('\n');

/** Repeated imports of one file, as by the command. */
function begin(content: string) {
  const { area, taken } = createTaker();
  const file = path.join(testFolder(), 'own.csv');
  writeFileSync(file, content);
  const run = (changes: Partial<ImportOptions> = {}): Promise<ImportOutcome> =>
    importFile(file, area, importOptions({ format: 'csv', parallel: 1, ...changes }), {
      onProgress: silent,
      onWait: silent,
    });
  return { file, run, taken };
}

const map = { what: 'customEventName', customEventName: '' };

describe('a file without a stored event', () => {
  it.each<[string, Partial<ImportOptions>]>([
    ['another map', { map }],
    ['another map and --reimport', { map, again: true }],
    ['another event and app', { map, event: 'customEvent', idApp: 2 }],
  ])('It is imported with %s like a new file', async (_, changes) => {
    const { file, run, taken } = begin(csvOf('bad', 'bad'));
    expect(await run()).toMatchObject({ stored: 0, refused: 2 });
    expect(await run(changes)).toMatchObject({ stored: 2, refused: 0 });
    expect(taken).toHaveLength(2);
    expect(existsSync(`${file}.refused.ndjson`)).toBe(false);
    expect(await run(changes.again === true ? { map } : changes)).toMatchObject({
      stored: 2,
      importedAt: expect.any(String) as string,
    });
    expect(taken).toHaveLength(2);
  });

  it('It is imported after it was fixed in place, and is not looked up again once it is stored', async () => {
    const { file, run, taken } = begin(csvOf('bad', 'bad'));
    await run();
    writeFileSync(file, csvOf('good', 'bad'));
    expect(await run()).toMatchObject({ stored: 1, refused: 1 });
    expect(readFileSync(`${file}.refused.ndjson`, 'utf8').trim().split('\n')).toHaveLength(1);
    writeFileSync(file, csvOf('good', 'good'));
    await expect(run()).rejects.toMatchObject({
      code: 'conflict',
      message: expect.stringMatching(
        /has changed since its import ended at .*, and 1 of its events are stored/,
      ) as string,
      hint: expect.stringMatching(/as a separate file\. --reimport imports the whole file/) as string,
    });
    await expect(run({ map })).rejects.toThrow(/has changed/);
    expect(taken).toHaveLength(1);
    expect(await run({ again: true })).toMatchObject({ stored: 2 });
  });

  it('Events that were stored with one map are imported with another one only with --reimport', async () => {
    const { file, run, taken } = begin(csvOf('good'));
    await run();
    await expect(run({ map: { what: '' } })).rejects.toMatchObject({
      hint: expect.stringMatching(
        /--reimport to import the whole file with the new options; this duplicates/,
      ) as string,
    });
    expect(await run({ map: { what: '' }, again: true })).toMatchObject({ stored: 1 });
    expect(taken).toHaveLength(2);
    // The repeated import stores no event, but the previous one did.
    writeFileSync(file, csvOf('bad'));
    expect(await run({ again: true })).toMatchObject({ stored: 0, refused: 1 });
    writeFileSync(file, csvOf('good'));
    await expect(run()).rejects.toThrow(/has changed/);
  });
});

describe('a header that cannot form a valid event', () => {
  it.each([
    [
      'user;customEventName\nu-1;good',
      /own\.csv has no column for any of customUserId, .* of customEvent; unknown fields are "user"/,
    ],
    ['customUserId,name\nu-1,good', /has no column for customEventName of customEvent; unknown fields are "name"/],
    ['just text\nu-1', /any of customUserId, .*, and none for customEventName of customEvent; .* "just text"/],
  ])(
    'The header %j is rejected with its columns before any event is sent or a state is written',
    async (content, reason) => {
      const { file, run, taken } = begin(content);
      for (const again of [false, true])
        await expect(run({ again })).rejects.toMatchObject({
          code: 'usage',
          message: expect.stringMatching(reason) as string,
          hint: expect.stringContaining('--map') as string,
        });
      expect([taken.length, existsSync(statePath(file))]).toEqual([0, false]);
    },
  );

  it.each([';', '\t', '|'])(
    'Columns that are separated by %j are distinguished, also within quotes',
    async (separator) => {
      const rows = [
        ['customUserId', 'customEventName', '"a,b"'],
        ['u-1', 'good', `"x${separator}y"`],
        ['u-2', 'good', '1,5'],
      ];
      const { run, taken } = begin(rows.map((row) => row.join(separator)).join('\n'));
      expect(await run()).toMatchObject({ stored: 2, refused: 0 });
      expect(taken).toEqual([
        { customUserId: 'u-1', customEventName: 'good', 'a,b': `x${separator}y` },
        { customUserId: 'u-2', customEventName: 'good', 'a,b': '1,5' },
      ]);
    },
  );
});
