import { datasets, events, type Dataset } from '../../datasets/dataset.ts';
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

const isFollower = (dataset: Dataset): boolean => dataset !== events;

/** Writes the file anew. */
async function writeSnapshotFile(
  { file, root, clock, retentionMs }: SnapshotFileOptions,
  tables: readonly Dataset[],
): Promise<void> {
  const followers = tables.filter(isFollower);
  await writeFileDurably(
    file,
    snapshotSql({ root, followers, retentionMs, writtenAtMs: clock.nowMs() }),
    tableFileMode,
  );
}

/**
 * Makes sure that the file is there, names the tables of the lake, and is that of this folder: a copied one names the
 * folder that it was copied from.
 */
export async function ensureSnapshotFile(options: SnapshotFileOptions, tables: readonly Dataset[]): Promise<void> {
  const { file, root, retentionMs } = options;
  const text = await findTextFile(file);
  const followers = tables.filter(isFollower);
  if (
    text === undefined ||
    text !== snapshotSql({ root, followers, retentionMs, writtenAtMs: findWrittenAt(text) ?? 0 })
  )
    await writeSnapshotFile(options, tables);
}

/** Writes the file anew when a table has moved on, so that the text in a copy of the lake is known for one. */
export interface SnapshotFile {
  /** Takes the lake's tables, each with its version. */
  renew(versions: ReadonlyMap<Dataset, number>): Promise<void>;
}

/** Keeps the time in a lake's snapshot.sql near that of its newest commit. For the one compactor. */
export function createSnapshotFile(options: SnapshotFileOptions): SnapshotFile {
  let written: string | undefined;
  return {
    async renew(versions) {
      const now = [...versions].map(([{ table }, version]) => `${table} ${version}`).join(', ');
      if (now === written) return;
      // In the order of the datasets, whatever came first.
      await writeSnapshotFile(
        options,
        [...datasets.values()].filter((dataset) => versions.has(dataset)),
      );
      written = now;
    },
  };
}
