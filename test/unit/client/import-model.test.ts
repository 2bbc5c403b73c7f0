import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { cutBatches, maxBatchEvents, renderBody, type ImportBatch } from '../../../src/client/batches.ts';
import { createFileSource, maxBodyBytes, inputStart, type EventSource } from '../../../src/client/event-source.ts';
import { runImport } from '../../../src/client/run-import.ts';
import { createRandom, type Random } from '../../../src/demo/random.ts';
import * as limits from '../../../src/ingest/required-ids.ts';
import { createModel, emptyState } from '../../helpers/import-model.ts';
import { testFolder } from '../../helpers/folder.ts';

const hourMs = 3_600_000;
const seeds = Number(process.env['TRIBUTARY_TEST_IMPORT_SEEDS'] ?? 25);
const never = new AbortController().signal;
const silent = (): void => undefined;
const isEvent = (line: string): boolean => line.startsWith('{');

/** Lines of events; some are rejected, invalid or blank. */
function makeLines(random: Random, count: number): string[] {
  return Array.from({ length: count }, (_, index) => {
    if (random.chance(0.02)) return '';
    if (random.chance(0.02)) return `no event ${index}`;
    const text = 'x'.repeat(random.chance(0.05) ? random.integer(0, 9000) : random.integer(0, 400));
    return JSON.stringify({ n: index, ...(random.chance(0.05) ? { bad: true } : {}), text });
  });
}

function sourceOf(lines: readonly string[], isCsv = false): EventSource {
  const file = path.join(testFolder(), 'input');
  writeFileSync(file, `${lines.join('\n')}\n`);
  return createFileSource(file, { format: isCsv ? 'csv' : 'ndjson', event: 'login', map: new Map(), timeFormat: 's' });
}

async function collect(batches: AsyncIterable<ImportBatch>): Promise<ImportBatch[]> {
  const all: ImportBatch[] = [];
  for await (const importBatch of batches) all.push(importBatch);
  return all;
}

describe('the batches of an input', () => {
  it('The limits of the import are those of the service', () => {
    expect({ maxBatchEvents, maxBodyBytes }).toEqual({
      maxBatchEvents: limits.maxBatchEvents,
      maxBodyBytes: limits.maxBodyBytes,
    });
  });

  it.each([1, 2, 3, 4])(
    'A cut that resumes at the end of any batch gives the same batches, within the limits, seed %i',
    async (seed) => {
      const lines = makeLines(createRandom(seed), 300);
      const source = sourceOf(lines);
      const all = await collect(cutBatches(source, { number: 0, place: inputStart }));
      for (const { events } of all) {
        expect(events.length).toBeLessThanOrEqual(maxBatchEvents);
        expect(Buffer.byteLength(renderBody(events))).toBeLessThanOrEqual(maxBodyBytes);
      }
      expect(all.flatMap(({ events }) => events.map(({ json }) => json))).toEqual(lines.filter(isEvent));
      for (const { number, next } of all.slice(0, -1))
        expect(await collect(cutBatches(source, { number: number + 1, place: next }))).toEqual(all.slice(number + 1));
    },
  );

  it('A cut of CSV resumes after records of several lines', async () => {
    const records = Array.from({ length: 100 }, (_, index) => `${index},"two\n""lines"", ${index}"`);
    const source = sourceOf(['customUserId,customEventParams.text', ...records], true);
    const all = await collect(cutBatches(source, { number: 0, place: inputStart }));
    expect(all.flatMap(({ events }) => events).map(({ line }) => line)).toEqual(
      records.map((_, index) => 2 + 2 * index),
    );
    expect(all[0]?.events[1]?.json).toBe('{"customUserId":"1","customEventParams":{"text":"two\\n\\"lines\\", 1"}}');
    const [, second] = all;
    expect(await collect(cutBatches(source, { number: 2, place: second?.next ?? inputStart }))).toEqual(all.slice(2));
  });
});

describe('an import that is killed anywhere', () => {
  it.each(Array.from({ length: seeds }, (_, index) => index + 1))(
    'Every event is stored once or rejected once, regardless of lost responses and long pauses, seed %i',
    async (seed) => {
      const random = createRandom(seed);
      const lines = makeLines(random, random.integer(1, 400));
      const source = sourceOf(lines);
      const model = createModel(random, emptyState);
      const run = (): Promise<unknown> =>
        runImport({
          source,
          area: model.service,
          method: 'customEventBatch',
          seed: 'seed',
          state: model.state(),
          record: model.record,
          sizeBytes: undefined,
          parallel: random.integer(1, 6),
          giveUpAfterMs: 60_000,
          nowMs: model.nowMs,
          signal: never,
          hooks: { onProgress: silent, onWait: silent },
        });
      const loosened = random.chance(0.3) ? random.integer(0, 5) : -1;
      const endings: string[] = [];
      for (let kills = 0; kills < 6; kills += 1) {
        if (kills === loosened) model.service.loosen();
        model.dieAfter(random.integer(1, 120), random.pick([0, 1, 12, 23, 25, 100]) * hourMs);
        endings.push(await run().then(() => 'done', String));
      }
      model.dieAfter(Number.POSITIVE_INFINITY, 0);
      await run();
      expect(endings.filter((ending) => ending !== 'done' && ending !== 'Error: killed')).toEqual([]);
      const { stored, reusedKeys } = model.service;
      const good = lines.filter((line) => line.startsWith('{') && !line.includes('"bad"'));
      expect(good.filter((line) => stored.get(line) !== 1)).toEqual([]);
      expect([...stored.values()].filter((times) => times !== 1)).toEqual([]);
      expect(reusedKeys).toEqual([]);
      const settledOf = (line: string): boolean => stored.has(line);
      const wanted = lines.flatMap((line, index) => (line === '' || settledOf(line) ? [] : [index + 1]));
      expect(model.refusedLines()).toEqual(wanted);
      expect(model.state()).toMatchObject({
        finishedAt: expect.any(String) as string,
        acknowledgedThrough: { stored: stored.size, refused: wanted.length },
      });
    },
  );
});
