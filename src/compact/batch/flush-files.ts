import path from 'node:path';
import { removeFile, syncFolder } from '../../runtime/files/durable-file.ts';
import { isAppError } from '../../runtime/errors.ts';
import type { Failure } from '../../lake/batch/spool-lines.ts';
import type { WrittenFile } from '../../lake/files/data-file.ts';
import { isCommitted, settleFailed, writePendingFailed } from '../../lake/files/failed-events.ts';
import type { Table } from '../../lake/log/table.ts';
import { youngFolder } from '../../lake/log/young-folder.ts';

/** The young file of one flush, under a name that holds the commit's id. */
export interface YoungFile {
  /** Relative to the table's folder. */
  readonly path: string;
  /** Gives its path to whoever writes rows to it, and makes it durable; undefined when they have written none. */
  write(toFile: (file: string) => Promise<WrittenFile | undefined>): Promise<WrittenFile | undefined>;
  /** After an error, which may have come after the commit: removes the file unless the log names it. */
  removeUnnamed(): Promise<void>;
}

/** Plans the young file of a flush whose commit to the table will have this id. */
export function createYoungFile(table: Table, commitId: string): YoungFile {
  const youngPath = path.join(youngFolder, `${commitId}.parquet`);
  const file = path.join(table.dir, youngPath);
  return {
    path: youngPath,
    async write(toFile) {
      const written = await toFile(file);
      if (written !== undefined) await syncFolder(path.dirname(file));
      return written;
    },
    async removeUnnamed() {
      await table.refresh().catch((foreign: unknown) => {
        if (!isAppError(foreign, 'foreign_commit')) throw foreign;
      });
      if (!table.state().files.has(encodeURI(youngPath))) await removeFile(file);
    },
  };
}

/** What one flush writes before its commit to the table of events, under names that hold the commit's id. */
export interface FlushFiles {
  readonly commitId: string;
  readonly young: YoungFile;
  /** Writes the failed events, at least one, durably; they count from the commit on. */
  writeFailed(failures: readonly Failure[], failedAtMs: number): Promise<void>;
  /** After the commit: gives the failed events their final name. */
  settle(): Promise<void>;
  /** After an error, which may have come after the commit: removes what the log does not name, and settles the rest. */
  removeUnnamed(): Promise<void>;
}

/** Plans the files of a flush whose commit will have this id, on top of the table as it is now. */
export function createFlushFiles(table: Table, failedDir: string, commitId: string): FlushFiles {
  const young = createYoungFile(table, commitId);
  const baseVersion = table.state().version;
  let pending: string | undefined;
  return {
    commitId,
    young,
    async writeFailed(failures, failedAtMs) {
      const failedAt = new Date(failedAtMs).toISOString();
      const events = failures.map((failure) => ({ failedAt, ...failure }));
      pending = await writePendingFailed(failedDir, baseVersion, commitId, events);
    },
    async settle() {
      if (pending !== undefined) await settleFailed(failedDir, pending, commitId);
      pending = undefined;
    },
    async removeUnnamed() {
      await young.removeUnnamed();
      if (pending === undefined) return;
      if (await isCommitted(table.dir, baseVersion, commitId)) await settleFailed(failedDir, pending, commitId);
      else await removeFile(pending);
    },
  };
}
