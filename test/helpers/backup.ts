import path from 'node:path';
import { expect } from 'vitest';
import { completeRestore } from '../../src/compact/complete-restore.ts';
import { dataPaths } from '../../src/config.ts';
import { checkLake } from '../../src/lake/check.ts';
import { makeBackup, type BackupSource } from '../../src/admin/backup/backup.ts';
import type { BackupAnswer } from '../../src/admin/backup/backup-manifest.ts';
import { restoreBackup } from '../../src/admin/backup/restore.ts';
import { createClock } from '../../src/runtime/clock.ts';
import type { StreamReader } from '../../src/stream/stream.ts';
import { readRows } from './lake.ts';
import { silentLogger } from './nats.ts';

const clock = createClock(0);
const { signal } = new AbortController();
const mebibyte = 1024 * 1024;

/** Returns the data folder in `folder` as the source of a backup, with the given stream or one that opens on demand. */
export function sourceOf(
  folder: string,
  stream: StreamReader | undefined | (() => Promise<StreamReader>),
): BackupSource {
  return {
    dataDir: folder,
    paths: dataPaths(folder),
    datasetsDir: dataPaths(folder).datasets,
    withStream: async (work) => work(typeof stream === 'function' ? await stream() : stream),
  };
}

/** Backs up a folder as the command does. */
export function backUp(
  folder: string,
  dir: string,
  stream: StreamReader | undefined | (() => Promise<StreamReader>),
  { link = false } = {},
): Promise<BackupAnswer> {
  return makeBackup(sourceOf(folder, stream), dir, { clock, link, signal, logger: silentLogger });
}

/** Restores a backup as the command does. */
export function restore(dir: string, folder: string): Promise<BackupAnswer> {
  const paths = dataPaths(folder);
  const options = {
    lakeDir: paths.lake,
    spoolDir: path.join(paths.spool, 'restore'),
    flushMaxBytes: 8 * mebibyte,
    flushMaxRows: 250_000,
    sealMaxBytes: 128 * mebibyte,
    retentionMs: 86_400_000,
    duckdbMemoryMb: 512,
  };
  return restoreBackup(dir, folder, {
    completeLake: async ({ lakeVersion, madeAt }, tail) => {
      if (lakeVersion >= 0 || tail !== undefined)
        await completeRestore({ clock, logger: silentLogger, signal }, tail, madeAt, options);
    },
    signal,
    logger: silentLogger,
  });
}

/**
 * Asserts that the lake of a folder is complete, that its totals match its rows, and that it has exactly these events.
 */
export async function expectEvents(folder: string, ids: readonly string[]): Promise<void> {
  expect((await readRows(folder, 'event_id')).map((row) => row['event_id'])).toEqual(ids.toSorted());
  expect((await checkLake(path.join(folder, 'lake'))).problems).toEqual([]);
}
