import path from 'node:path';
import { expect, test } from 'vitest';
import { checkLake } from '../../src/lake/check.ts';
import { readHistory } from '../../src/lake/history.ts';
import { lakePaths } from '../../src/lake/lake.ts';
import { readSnapshot, type DataFile } from '../../src/lake/log/snapshot.ts';
import { testFolder } from '../helpers/folder.ts';
import { inWholeRun } from '../helpers/in-turn.ts';
import { eventLine, query, startTestCompact } from '../helpers/lake.ts';
import { createMemoryStream } from '../helpers/memory-stream.ts';
import { waitFor } from '../helpers/wait.ts';

/** Two months; by night twenty years, 7305 days. */
const days = Number(process.env['TRIBUTARY_TEST_HISTORY_DAYS'] ?? 60);
const flushes = 70;
/** A flush has events of every seventh date, so that each date is in ten flushes. */
const stride = 7;
const daySeconds = 86_400;
/** Number of small young files that are merged. */
const mergeFiles = 64;
const firstDay = Date.UTC(2000, 0, 1) / 1000;

const say = (text: string): void => void process.stderr.write(`compact history: ${text}\n`);

async function readFiles(table: string): Promise<readonly DataFile[]> {
  return (await readSnapshot(table)).files;
}

test(`A client that sends a history of ${days} days leaves one file per date, and few files while its events wait`, async ({
  skip,
}) => {
  if (process.env['TRIBUTARY_TEST_HISTORY_DAYS'] === undefined) inWholeRun(skip);
  const folder = testFolder();
  const lakeDir = path.join(folder, 'lake');
  const { table } = lakePaths(lakeDir);
  const stream = createMemoryStream();
  const startMs = Date.now();
  let nowMs = startMs;
  const compactor = await startTestCompact(folder, stream, { clock: { nowMs: () => nowMs } });
  const fact = (name: string): number => Number(compactor.facts()[name]);

  let sent = 0;
  let mostFiles = 0;
  for (let flush = 0; flush < flushes; flush += 1) {
    const dates = Array.from({ length: days }, (_, day) => day).filter((day) => day % stride === flush % stride);
    stream.publish(
      dates.map((day) => eventLine({ event_time: firstDay + day * daySeconds + flush, received_at: nowMs })),
    );
    sent += dates.length;
    await waitFor('the flush', () => fact('stored') === sent);
    mostFiles = Math.max(mostFiles, fact('files'));
    nowMs += 300_000;
  }
  await waitFor('the small files of many flushes become one', () => fact('files') < mergeFiles);
  const waiting = await readFiles(table);
  expect(waiting.every((file) => file.young)).toBe(true);

  // The first events are due, and the others are sealed with them, instead of the dates of each flush separately.
  nowMs = startMs + 24 * 3_600_000;
  const begun = performance.now();
  await waitFor('all is sealed', () => fact('files') === days, 240_000);
  const seconds = (performance.now() - begun) / 1000;
  await compactor.stop();
  const files = await readFiles(table);
  const seals = (await readHistory(lakeDir, 1000)).filter(({ cause }) => cause === 'seal').length;
  const peakMb = Math.round(process.resourceUsage().maxRSS / 1024);
  say(
    `${sent} events of ${days} dates in ${flushes} flushes: at most ${mostFiles} files while they wait, ${waiting.length} at the end of it`,
  );
  say(
    `${files.length} files after the wait (${sent} if each flush wrote one a date), by ${seals} seals, the last in ${seconds.toFixed(1)} s; peak memory ${peakMb} MB`,
  );

  expect(files.every((file) => !file.young)).toBe(true);
  expect(files.length).toBe(days);
  const [row] = await query(
    `SELECT count(*)::INT AS rows, count(DISTINCT event_id)::INT AS ids, count(DISTINCT date)::INT AS dates FROM read_parquet('${table}/kind=*/date=*/*.parquet')`,
  );
  expect(row).toEqual({ rows: sent, ids: sent, dates: days });
  expect((await checkLake(lakeDir)).problems).toEqual([]);
}, 300_000);
