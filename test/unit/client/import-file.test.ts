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
import { createModel, emptyState, importOptions } from '../../helpers/import-model.ts';

const hourMs = 3_600_000;
const silent = (): void => undefined;
type Model = ReturnType<typeof createModel>;

const modelOf = (seed: number): Model => createModel(createRandom(seed), emptyState, true);
const optionsOf = ({ nowMs }: Model): ImportOptions => importOptions({ nowMs });

interface Changes extends Partial<ImportOptions> {
  readonly area?: ImportArea;
  readonly onProgress?: () => void;
}

function importHere(model: Model, file: string, changes: Changes = {}): Promise<ImportOutcome> {
  const { area = model.service, onProgress = silent, ...options } = changes;
  return importFile(file, area, { ...optionsOf(model), ...options }, { onProgress, onWait: silent });
}

/** A file of events; some are rejected. */
function input(count: number, bad: readonly number[] = [], name = 'events.ndjson'): string {
  const file = path.join(testFolder(), name);
  const lines = Array.from(
    { length: count },
    (_, n) => `${JSON.stringify({ n, ...(bad.includes(n) ? { bad: true } : {}) })}\n`,
  );
  writeFileSync(file, name.endsWith('.gz') ? gzipSync(lines.join('')) : lines.join(''));
  return file;
}

/** Counts of events that are not stored exactly once, and of all events. */
function countsOf({ service }: Model) {
  return { events: service.stored.size, twice: [...service.stored.values()].filter((times) => times !== 1).length };
}

describe('a file that is imported by more than one client', () => {
  it('A copy of a file and its state stores no event twice when it is resumed days after the other has finished', async () => {
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
    'A file whose state was lost, and whose first events are rejected, stores no event twice days later: %j',
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

  it('An import that is interrupted before the service has confirmed the file repeats the lookup the next time', async () => {
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
    'An import whose clock is set while it is stopped does not trust the elapsed time, seed %i',
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

  it('Imports of a file with separate states have separate files of rejected events', async () => {
    const [one, other] = [modelOf(1), modelOf(2)];
    const file = input(100, [5]);
    const stateFile = path.join(testFolder(), 'other.json');
    const first = await importHere(one, file);
    other.service.loosen();
    expect(await importHere(other, file, { stateFile })).toMatchObject({ refused: 0 });
    expect(readFileSync(first.refusedFile ?? '', 'utf8')).toContain('"line":6');
  });

  it('An import that is repeated on purpose resumes by the same command', async () => {
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

describe('the files of an import', () => {
  it('A truncated gzip file sends no event, and the complete one is then stored', async () => {
    const model = modelOf(5);
    const file = input(3000, [], 'events.ndjson.gz');
    const whole = readFileSync(file);
    truncateSync(file, whole.length - 100);
    await expect(importHere(model, file)).rejects.toThrow(/is not a complete gzip file/);
    expect(countsOf(model).events).toBe(0);
    writeFileSync(file, whole);
    expect(await importHere(model, file)).toMatchObject({ stored: 3000 });
  });

  it('A pipe or a folder is rejected, and a pipe is not opened, since that would block', async () => {
    const pipe = path.join(testFolder(), 'pipe');
    execFileSync('mkfifo', [pipe]);
    for (const name of [pipe, path.dirname(pipe)])
      await expect(importHere(modelOf(1), name)).rejects.toThrow(/is not a regular file/);
  });

  it('A rejected event is written with its exact digits', async () => {
    const file = path.join(testFolder(), 'large.ndjson');
    const event = '{"bad":true, "id":12345678901234567890, "amount":0.10}';
    writeFileSync(file, `${event}\n`);
    const { refusedFile = '' } = await importHere(modelOf(1), file, { force: true });
    expect(readFileSync(refusedFile, 'utf8')).toContain(`"event":${event}}\n`);
    expect(JSON.parse(readFileSync(refusedFile, 'utf8'))).toMatchObject({ line: 1 });
  });

  it('An unclosed quote is reported by its lines, and a column that conflicts with its own member is rejected', async () => {
    const model = modelOf(1);
    const file = path.join(testFolder(), 'open.csv');
    writeFileSync(file, `customUserId,text\n1,a\n2,"open\n${'3,x\n'.repeat(30_000)}`);
    const { stored, refusedFile = '' } = await importHere(model, file, { format: 'csv', event: 'login' });
    expect(stored).toBe(1);
    expect(JSON.parse(readFileSync(refusedFile, 'utf8'))).toMatchObject({
      line: 3,
      hint: 'Check for an unclosed quote: the record extends to line 30003.',
    });
    const both = path.join(testFolder(), 'both.csv');
    writeFileSync(both, 'customEventParams,customEventParams.level\nx,3\n');
    await expect(importHere(model, both, { format: 'csv' })).rejects.toThrow(
      /maps to customEventParams\.level, another one to all/,
    );
  });
});

async function* endless(): AsyncGenerator<Uint8Array> {
  yield Buffer.from('{"n":1}\n{"n":');
  await new Promise(() => undefined);
}
const nobody = () => Promise.reject(new AppError('service_away', 'the service is away'));

describe('the import of standard input', () => {
  it('It ends with the signal while input is idle, and sends no truncated line', async () => {
    const model = modelOf(1);
    const stop = new AbortController();
    const file = path.join(testFolder(), 'refused');
    const options = { ...optionsOf(model), signal: stop.signal };
    const running = importInput(endless(), file, model.service, options, { onProgress: silent, onWait: silent });
    setImmediate(() => stop.abort());
    expect(await running).toMatchObject({ isInterrupted: true, refused: 0 });
    expect(existsSync(file)).toBe(false);
  });

  it('It reports its position when the service is away, and does not suggest a retry', async () => {
    const model = modelOf(1);
    const area = { ...model.service, postBatch: nobody };
    const options = { ...optionsOf(model), giveUpAfterMs: 0 };
    const lines = (async function* () {
      yield Buffer.from('{"n":1}\n');
    })();
    await expect(
      importInput(lines, path.join(testFolder(), 'refused'), area, options, { onProgress: silent, onWait: silent }),
    ).rejects.toMatchObject({
      code: 'service_away',
      hint: expect.stringMatching(/^Standard input is imported up to line 0/) as string,
    });
  });
});
