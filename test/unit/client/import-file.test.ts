import { execFileSync } from 'node:child_process';
import { copyFileSync, existsSync, readFileSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { gzipSync } from 'node:zlib';
import { describe, expect, it } from 'vitest';
import type { ImportArea } from '../../../src/client/import-area.ts';
import { importFile } from '../../../src/client/import-file.ts';
import { importInput, type ImportOutcome } from '../../../src/client/run-import.ts';
import { statePath, type ImportOptions } from '../../../src/client/import-state.ts';
import { createRandom } from '../../../src/demo/random.ts';
import { AppError } from '../../../src/runtime/errors.ts';
import { testFolder } from '../../helpers/folder.ts';
import { createModel, emptyState } from '../../helpers/import-model.ts';

const hourMs = 3_600_000;
const never = new AbortController().signal;
const silent = (): void => undefined;
type Model = ReturnType<typeof createModel>;

const modelOf = (seed: number): Model => createModel(createRandom(seed), emptyState, true);
const optionsOf = (model: Model): ImportOptions => ({
  idApp: 1,
  event: 'customEvent',
  format: 'ndjson',
  map: {},
  parallel: 3,
  patienceMs: 60_000,
  again: false,
  nowMs: model.nowMs,
  signal: never,
});

interface Changes extends Partial<ImportOptions> {
  readonly area?: ImportArea;
  readonly onProgress?: () => void;
}

function importHere(model: Model, file: string, changes: Changes = {}): Promise<ImportOutcome> {
  const { area = model.service, onProgress = silent, ...options } = changes;
  return importFile(file, area, { ...optionsOf(model), ...options }, { onProgress, onWait: silent });
}

/** A file of events; some are refused. */
function input(count: number, bad: readonly number[] = [], name = 'events.ndjson'): string {
  const file = path.join(testFolder(), name);
  const lines = Array.from(
    { length: count },
    (_, n) => `${JSON.stringify({ n, ...(bad.includes(n) ? { bad: true } : {}) })}\n`,
  );
  writeFileSync(file, name.endsWith('.gz') ? gzipSync(lines.join('')) : lines.join(''));
  return file;
}

/** How often events are there that are not there once, and how many are. */
function countsOf({ service }: Model) {
  return { events: service.stored.size, twice: [...service.stored.values()].filter((times) => times !== 1).length };
}

describe('a file that is imported from more than one place', () => {
  it('A copy of a file and its state stores nothing twice when it is gone on with days after the other was done', async () => {
    const model = modelOf(1);
    const file = input(11_000);
    const copy = path.join(testFolder(), 'copy.ndjson');
    const onProgress = (): void => {
      if (existsSync(copy)) return;
      copyFileSync(file, copy);
      copyFileSync(statePath(file), statePath(copy));
    };
    await importHere(model, file, { onProgress });
    model.pass(30 * hourMs);
    expect(await importHere(model, copy)).toMatchObject({ stored: 11_000 });
    expect(countsOf(model)).toEqual({ events: 11_000, twice: 0 });
  });

  it.each([[[0]], [[3, 7]], [Array.from({ length: 25 }, (_, n) => n)]])(
    'A file whose state is gone, and whose first events are refused, stores nothing twice days later: %j',
    async (bad) => {
      for (const seed of [1]) {
        const model = modelOf(seed);
        const file = input(100, bad);
        await importHere(model, file);
        rmSync(statePath(file));
        model.pass(30 * hourMs);
        expect(await importHere(model, file)).toMatchObject({ stored: 100 - bad.length, refused: bad.length });
        expect(countsOf(model)).toEqual({ events: 100 - bad.length, twice: 0 });
      }
    },
  );

  it('An import that is ended while the service cannot say whether it has the file asks again the next time', async () => {
    const model = modelOf(4);
    const file = input(100);
    await importHere(model, file);
    rmSync(statePath(file));
    model.pass(30 * hourMs);
    const stop = new AbortController();
    const findKey = async () => {
      stop.abort();
      return { why: 'it is busy', waitMs: 0 };
    };
    const ended = await importHere(model, file, { signal: stop.signal, area: { ...model.service, findKey } });
    expect(ended.isInterrupted).toBe(true);
    await importHere(model, file);
    expect(countsOf(model)).toEqual({ events: 100, twice: 0 });
  });

  it.each([1, 2])(
    'An import whose clock is set while it is stopped does not believe how long that was, seed %i',
    async (seed) => {
      const model = modelOf(seed);
      const file = input(2000);
      model.dieAfter(60 + seed, 0);
      await expect(importHere(model, file)).rejects.toThrow('killed');
      model.dieAfter(Number.POSITIVE_INFINITY, 30 * hourMs);
      await importHere(model, file, { nowMs: () => model.nowMs() - 12 * hourMs });
      expect(countsOf(model)).toEqual({ events: 2000, twice: 0 });
    },
  );

  it('Imports of a file with states of their own leave the refused events of each other alone', async () => {
    const [one, other] = [modelOf(1), modelOf(2)];
    const file = input(100, [5]);
    const stateFile = path.join(testFolder(), 'other.json');
    const first = await importHere(one, file);
    other.service.loosen();
    expect(await importHere(other, file, { stateFile })).toMatchObject({ refused: 0 });
    expect(readFileSync(first.refusedFile ?? '', 'utf8')).toContain('"line":6');
  });

  it('An import that is repeated on purpose goes on by the same command', async () => {
    const model = modelOf(3);
    const file = input(2000);
    await importHere(model, file);
    const stop = new AbortController();
    expect(
      await importHere(model, file, { again: true, signal: stop.signal, onProgress: () => stop.abort() }),
    ).toMatchObject({
      isInterrupted: true,
    });
    await importHere(model, file, { again: true });
    expect([...model.service.stored.values()].filter((times) => times !== 2)).toEqual([]);
  });
});

describe('what an import reads and writes', () => {
  it('A packed file that is cut off sends nothing, and the whole one is then stored', async () => {
    const model = modelOf(5);
    const file = input(3000, [], 'events.ndjson.gz');
    const whole = readFileSync(file);
    truncateSync(file, whole.length - 100);
    await expect(importHere(model, file)).rejects.toThrow(/is no whole gzip file/);
    expect(countsOf(model).events).toBe(0);
    writeFileSync(file, whole);
    expect(await importHere(model, file)).toMatchObject({ stored: 3000 });
  });

  it('A pipe or a folder is refused, and a pipe is not opened, which would wait for its writer', async () => {
    const pipe = path.join(testFolder(), 'pipe');
    execFileSync('mkfifo', [pipe]);
    for (const name of [pipe, path.dirname(pipe)])
      await expect(importHere(modelOf(1), name)).rejects.toThrow(/is no regular file/);
  });

  it('A refused event is written digit by digit as it was given', async () => {
    const file = path.join(testFolder(), 'large.ndjson');
    const event = '{"bad":true, "id":12345678901234567890, "amount":0.10}';
    writeFileSync(file, `${event}\n`);
    const { refusedFile = '' } = await importHere(modelOf(1), file);
    expect(readFileSync(refusedFile, 'utf8')).toContain(`"event":${event}}\n`);
    expect(JSON.parse(readFileSync(refusedFile, 'utf8'))).toMatchObject({ line: 1 });
  });

  it('A quote that nobody closes is named by its lines, and a column beside one of its members is refused', async () => {
    const model = modelOf(1);
    const file = path.join(testFolder(), 'open.csv');
    writeFileSync(file, `customUserId,text\n1,a\n2,"open\n${'3,x\n'.repeat(30_000)}`);
    const { stored, refusedFile = '' } = await importHere(model, file, { format: 'csv', event: 'login' });
    expect(stored).toBe(1);
    expect(JSON.parse(readFileSync(refusedFile, 'utf8'))).toMatchObject({
      line: 3,
      hint: 'It takes the lines up to 30003: look for a quote that is not closed.',
    });
    const both = path.join(testFolder(), 'both.csv');
    writeFileSync(both, 'customEventParams,customEventParams.level\nx,3\n');
    await expect(importHere(model, both, { format: 'csv' })).rejects.toThrow(
      /becomes customEventParams\.level, and another all/,
    );
  });
});

async function* endless(): AsyncGenerator<Uint8Array> {
  yield Buffer.from('{"n":1}\n{"n":');
  await new Promise(() => undefined);
}
const nobody = () => Promise.reject(new AppError('service_away', 'nobody is there'));

describe('the import of standard input', () => {
  it('It ends with the signal while nothing comes, and sends nothing of what is cut off', async () => {
    const model = modelOf(1);
    const stop = new AbortController();
    const file = path.join(testFolder(), 'refused');
    const options = { ...optionsOf(model), signal: stop.signal };
    const running = importInput(endless(), file, model.service, options, { onProgress: silent, onWait: silent });
    setImmediate(() => stop.abort());
    expect(await running).toMatchObject({ isInterrupted: true, refused: 0 });
    expect(existsSync(file)).toBe(false);
  });

  it('It says how far it came when the service is away, and not to repeat the command', async () => {
    const model = modelOf(1);
    const area = { ...model.service, postBatch: nobody };
    const options = { ...optionsOf(model), patienceMs: 0 };
    const lines = (async function* () {
      yield Buffer.from('{"n":1}\n');
    })();
    await expect(
      importInput(lines, path.join(testFolder(), 'refused'), area, options, { onProgress: silent, onWait: silent }),
    ).rejects.toMatchObject({
      code: 'service_away',
      hint: expect.stringMatching(/^Up to line 0 of standard input/) as string,
    });
  });
});
