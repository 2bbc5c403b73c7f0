import { findTextFile, writeFileDurably } from '../../runtime/files/durable-file.ts';
import type { Clock } from '../../runtime/clock.ts';
import { tableFileMode } from '../../runtime/files/group-access.ts';
import { findWrittenAt, snapshotSql } from './snapshot-sql.ts';

/** A lake's snapshot.sql: where it lies, and what it says. */
export interface SnapshotFileOptions {
  readonly file: string;
  /** The lake's folder, absolute. */
  readonly root: string;
  readonly clock: Clock;
  /** How long the lake keeps the files that it has replaced, milliseconds. */
  readonly retentionMs: number;
}

/** Writes the file anew. */
async function writeSnapshotFile({ file, root, clock, retentionMs }: SnapshotFileOptions): Promise<void> {
  await writeFileDurably(file, snapshotSql({ root, retentionMs, writtenAtMs: clock.nowMs() }), tableFileMode);
}

/**
 * Makes sure that the file is there, and is that of this folder: a copied one names the folder that it was copied from.
 */
export async function ensureSnapshotFile(options: SnapshotFileOptions): Promise<void> {
  const { file, root, retentionMs } = options;
  const text = await findTextFile(file);
  if (text === undefined || text !== snapshotSql({ root, retentionMs, writtenAtMs: findWrittenAt(text) ?? 0 }))
    await writeSnapshotFile(options);
}

/** Writes the file anew when the table has moved on, so that the text in a copy of the lake is known for one. */
export interface SnapshotFile {
  renew(version: number): Promise<void>;
}

/** Keeps the time in a lake's snapshot.sql near that of its newest commit. For the one compactor. */
export function createSnapshotFile(options: SnapshotFileOptions): SnapshotFile {
  let written: number | undefined;
  return {
    async renew(version) {
      if (version === written) return;
      await writeSnapshotFile(options);
      written = version;
    },
  };
}
