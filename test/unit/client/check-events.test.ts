import { existsSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import type { EventCheck } from '../../../src/client/check-events.ts';
import type { BatchResponse, ImportArea } from '../../../src/client/import-area.ts';
import { checkInput, importFile } from '../../../src/client/import-file.ts';
import { statePath, type ImportOptions } from '../../../src/client/import-state.ts';
import { createPace } from '../../../src/client/pace.ts';
import { importInput } from '../../../src/client/run-import.ts';
import { createRandom } from '../../../src/demo/random.ts';
import { testFolder } from '../../helpers/folder.ts';
import { createModel, emptyState, importOptions } from '../../helpers/import-model.ts';

const silent = (): void => undefined;

/** Rejects events with a `bad` member. */
function judge(body: string): BatchResponse {
  const events = JSON.parse(body) as { readonly bad?: string }[];
  const validationErrors = events.flatMap(({ bad }, index) =>
    bad === undefined ? [] : [{ index, field: 'bad', reason: `must not be ${bad}`, hint: undefined }],
  );
  return validationErrors.length > 0
    ? { state: 'rejected', validationErrors }
    : { state: 'stored', unknownParameters: [] };
}

/** A service with these rules; its requests are recorded. */
function createJudge() {
  const sent: string[] = [];
  const area: ImportArea = {
    ...createModel(createRandom(1), emptyState, true).service,
    checkBatch: async (_, body) => judge(body),
    postBatch: async (_, body) => {
      sent.push(body);
      return judge(body);
    },
    findKey: async () => ({ isKnown: false, isInLake: false, receivedAtMs: undefined }),
  };
  return { area, sent };
}

const options = importOptions();

function input(lines: readonly string[]): string {
  const file = path.join(testFolder(), 'events.ndjson');
  writeFileSync(file, `${lines.join('\n')}\n`);
  return file;
}

const lines = (count: number, bad: (index: number) => string | undefined): string[] =>
  Array.from({ length: count }, (_, n) => JSON.stringify({ n, bad: bad(n) }));

/** Imports lines from standard input; returns the sent numbers. */
async function importLines(texts: readonly string[]) {
  const { area, sent } = createJudge();
  const bytes = (async function* () {
    for (const text of texts) yield Buffer.from(`${text}\n`);
  })();
  const refused = path.join(testFolder(), 'refused');
  const outcome = await importInput(bytes, refused, area, options, { onProgress: silent, onWait: silent });
  return { outcome, numbers: sent.flatMap((body) => (JSON.parse(body) as { n: number }[]).map(({ n }) => n)) };
}

describe('the check before an import', () => {
  it('The first 1,000 lines are checked before any is sent, and problems are counted by kind with their lines', async () => {
    const { area, sent } = createJudge();
    const file = input([
      ...lines(1000, (n) => (n % 100 === 0 ? 'red' : n === 5 ? 'blue' : undefined)),
      '{"bad":"late"}',
    ]);
    let found: EventCheck | undefined;
    const onCheck = (check: EventCheck): void => {
      expect(sent).toEqual([]);
      found = check;
    };
    expect(await importFile(file, area, options, { onProgress: silent, onWait: silent, onCheck })).toMatchObject({
      stored: 989,
      refused: 12,
    });
    expect(found).toEqual({
      valid: 989,
      refused: 11,
      problems: [
        { field: 'bad', reason: 'must not be red', count: 10, lines: [1, 101, 201, 301, 401] },
        { field: 'bad', reason: 'must not be blue', count: 1, lines: [6] },
      ],
    });
  });

  it('An import whose first 1,000 events are all invalid sends nothing and leaves no state, unless it is forced', async () => {
    const { area, sent } = createJudge();
    const file = input([...lines(1000, () => 'red'), '{"n":1000}']);
    const hooks = { onProgress: silent, onWait: silent };
    await expect(importFile(file, area, options, hooks)).rejects.toMatchObject({
      code: 'usage',
      message: expect.stringMatching(
        /none of the first 1000 events .*: bad must not be red: 1000 events, line 1, 2/,
      ) as string,
    });
    expect([sent, existsSync(statePath(file))]).toEqual([[], false]);
    expect(await importFile(file, area, { ...options, force: true }, hooks)).toMatchObject({
      stored: 1,
      refused: 1000,
    });
  });

  it('A dry run validates every event and writes nothing', async () => {
    const { area, sent } = createJudge();
    const file = input([...lines(1200, (n) => (n === 1100 ? 'red' : undefined)), 'no json']);
    expect(await checkInput(file, undefined, area, options, { onWait: silent })).toMatchObject({
      valid: 1199,
      refused: 2,
      problems: [{ lines: [1101] }, { reason: 'is not JSON', lines: [1201] }],
    });
    expect([sent, existsSync(statePath(file))]).toEqual([[], false]);
  });

  it('Standard input is checked too, and none of its events is lost or repeated', async () => {
    const { outcome, numbers } = await importLines(lines(1500, () => undefined));
    expect(outcome).toMatchObject({ stored: 1500, lines: 1500 });
    expect(numbers.toSorted((a, b) => a - b)).toEqual(Array.from({ length: 1500 }, (_, n) => n));
    await expect(importLines(lines(30, () => 'red'))).rejects.toThrow(/none of the first 30 events/);
  });
});

describe('the options of an import', () => {
  it('An import resumes with the form of time that it began with, and rejects another one', async () => {
    const { area, sent } = createJudge();
    const file = input(lines(3000, () => undefined));
    const stop = new AbortController();
    const hooks = { onProgress: () => stop.abort(), onWait: silent };
    expect(await importFile(file, area, { ...options, timeFormat: 'iso', signal: stop.signal }, hooks)).toMatchObject({
      isInterrupted: true,
    });
    const resume = (changes: Partial<ImportOptions>) =>
      importFile(file, area, { ...options, ...changes }, { onProgress: silent, onWait: silent });
    const before = sent.length;
    await expect(resume({ timeFormat: 'ms' })).rejects.toThrow(/had another --format, --map or --time-format/);
    await expect(resume({ map: { n: '' } })).rejects.toThrow(/had another --format, --map or --time-format/);
    expect(sent).toHaveLength(before);
    expect(await resume({})).toMatchObject({ stored: 3000 });
    expect(await resume({ timeFormat: 'iso' })).toMatchObject({
      stored: 3000,
      importedAt: expect.any(String) as string,
    });
  });
});

describe('the pace of requests', () => {
  it('Requests begin one after the other, spaced, and none within the time that the service has named', async () => {
    const pace = createPace(20);
    const began: number[] = [];
    const ask = async (): Promise<void> => void began.push(performance.now());
    const startedAt = performance.now();
    await Promise.all([pace.run(ask), pace.run(ask), pace.run(() => Promise.reject(new Error('lost'))).catch(silent)]);
    pace.hold(100);
    const heldAt = performance.now();
    await pace.run(ask);
    const [first = 0, second = 0, third = 0] = began;
    expect(first - startedAt).toBeLessThan(20);
    expect(second - first).toBeGreaterThanOrEqual(20);
    expect(third - heldAt).toBeGreaterThanOrEqual(99);
  });
});
