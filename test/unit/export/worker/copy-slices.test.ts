import { mkdirSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import path from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { copySlices, type SliceCopyJob } from '../../../../src/export/worker/copy-slices.ts';
import { chooseFormat } from '../../../../src/export/worker/formats/format.ts';
import { startResultFiles, type ResultFiles } from '../../../../src/export/worker/formats/result-files.ts';
import type { QueryEngine } from '../../../../src/export/worker/query-engine.ts';
import { testFolder } from '../../../helpers/folder.ts';
import { waitFor } from '../../../helpers/wait.ts';
import { formatRequest } from '../../../helpers/format-request.ts';

const line = `${'x'.repeat(999)}\n`;
const statement = { sql: '', values: {} };
const format = chooseFormat(formatRequest());

/** Writes a slice by its number, instead of a database. */
type WriteSlice = (slice: number, file: string) => Promise<void>;

/** Copies slices by two engines. `onReached` gets each slice that an engine waits for. */
function copy(count: number, write: WriteSlice, onReached: (slice: number) => void = () => undefined): SliceCopyJob {
  const folder = testFolder();
  mkdirSync(folder, { recursive: true });
  const pathOf = (slice: number): string => path.join(folder, `${slice}`);
  const paths: [string, ...string[]] = [pathOf(0)];
  for (let slice = 1; slice < count; slice += 1) paths.push(pathOf(slice));
  const limits = { singleFileMaxBytes: 1e9, partMaxBytes: 1e9 };
  const made = startResultFiles(paths, format, { folder, stem: 'r', limits, onProgress: () => undefined });
  onTestFinished(() => made.abandon());
  const result: ResultFiles = {
    ...made,
    reached(slice) {
      onReached(slice);
      return made.reached(slice);
    },
  };
  const engine: QueryEngine = {
    describe: () => Promise.resolve([]),
    run: () => Promise.resolve(0),
    rows: () => Promise.resolve([]),
    async copyTo(_select, _files, file) {
      await write(paths.indexOf(file), file);
      return 1;
    },
    progress: () => 0,
    interrupt: () => undefined,
    close: () => undefined,
  };
  return copySlices(
    {
      engines: [{ ...engine }, { ...engine }],
      query: { select: statement, count: statement, days: statement, inline: true },
      format,
      emptyFile: 'empty.parquet',
      slices: paths.map(() => ({ files: [] })),
      paths,
      verify: () => Promise.resolve(),
    },
    result,
  );
}

it('The error of the failed engine is thrown, and not that of an engine that waited for its slice', async () => {
  let isAwaited = false;
  const sliceCopyJob = copy(
    8,
    async (slice, file) => {
      if (slice !== 1) return await writeFile(file, line);
      await waitFor('the first engine waits for the slice after this one', () => isAwaited);
      throw new Error('out of memory');
    },
    (slice) => {
      if (slice === 2) isAwaited = true;
    },
  );
  await expect(sliceCopyJob.rows).rejects.toThrow('out of memory');
});

it('The written bytes count each slice once, even if it ends while they are counted', async () => {
  const count = 100;
  let begun = 0;
  const ended = new AbortController();
  const sliceCopyJob = copy(count, async (_slice, file) => {
    begun += 1;
    await writeFile(file, line);
  });
  const tooMany: number[] = [];
  async function look(): Promise<void> {
    while (!ended.signal.aborted) {
      const most = begun * line.length;
      const bytes = await sliceCopyJob.writtenBytes();
      if (bytes > most) tooMany.push(bytes);
      await new Promise((resolve) => setImmediate(resolve));
    }
  }
  const looking = look();
  await sliceCopyJob.rows;
  ended.abort();
  await looking;
  expect(tooMany).toEqual([]);
  expect(await sliceCopyJob.writtenBytes()).toBe(count * line.length);
});
