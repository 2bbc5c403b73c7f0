import { randomUUID } from 'node:crypto';
import { open, rename, stat } from 'node:fs/promises';
import path from 'node:path';
import { findTextFile, removeFile, syncFile, syncFolder, writeFileDurably } from '../../runtime/files/durable-file.ts';
import { AppError } from '../../runtime/errors.ts';
import type { CrashPoint } from '../../runtime/crash-point.ts';
import type { Action } from './actions.ts';
import type { Duckdb } from '../sql/duckdb.ts';
import { sqlText } from '../sql/literals.ts';
import { hashFile } from '../../runtime/files/file-checks.ts';
import { tableFileMode } from '../../runtime/files/group-access.ts';
import { checkpointColumns, groupRows, isPlainAdd, plainFromKey, readActions } from './checkpoint-rows.ts';
import { checkpointHashName, checkpointName, logFolder } from './log-files.ts';
import type { TableState } from './table-state.ts';

/** The steps of a checkpoint at which a crash is tested. */
export const checkpointSteps = ['checkpoint-written', 'checkpoint-renamed'] as const;

/** The actions that say the same as the whole log up to this version: first those that are no plain adds. */
export function checkpointActions(state: Readonly<TableState>): { readonly mixed: Action[]; readonly plain: Action[] } {
  const mixed: Action[] = [];
  const plain: Action[] = [];
  if (state.protocol !== undefined) mixed.push({ protocol: state.protocol });
  if (state.metaData !== undefined) mixed.push({ metaData: state.metaData });
  for (const [appId, version] of state.txns) mixed.push({ txn: { appId, version } });
  for (const remove of state.tombstones.values()) mixed.push({ remove: { ...remove, dataChange: false } });
  // As readers sort them: what is in order already is sorted anew in no time, here and after each load.
  for (const encoded of [...state.files.keys()].toSorted()) {
    const add = state.files.get(encoded);
    if (add !== undefined) (isPlainAdd(add) ? plain : mixed).push({ add: { ...add, dataChange: false } });
  }
  return { mixed, plain };
}

/** Lines that are written at once: other work goes on in between. */
const spoolLines = 1000;

async function spoolActions(file: string, actions: readonly Action[]): Promise<void> {
  const handle = await open(file, 'wx', 0o600);
  try {
    for (let from = 0; from < actions.length; from += spoolLines) {
      const lines = actions.slice(from, from + spoolLines).map((action) => `${JSON.stringify(action)}\n`);
      await handle.write(lines.join(''));
    }
  } finally {
    await handle.close();
  }
}

/**
 * Writes the checkpoint of a version, then `_last_checkpoint`, both whole or not at all; returns the checkpoint's size.
 * The state must not change meanwhile. A crash leaves at most temporaries in the log folder, swept at start.
 */
export async function writeCheckpoint(
  duckdb: Duckdb,
  tableDir: string,
  state: Readonly<TableState>,
  crashPoint: CrashPoint,
): Promise<number> {
  const final = path.join(logFolder(tableDir), checkpointName(state.version));
  const id = randomUUID();
  const temporary = `${final}.${id}.tmp`;
  const spool = `${final}.${id}.ndjson.tmp`;
  try {
    const { mixed, plain } = checkpointActions(state);
    await spoolActions(spool, [...mixed, ...plain]);
    const columns = Object.entries(checkpointColumns).map(([name, type]) => `${sqlText(name)}: ${sqlText(type)}`);
    await duckdb.run(
      `COPY (SELECT * FROM read_json(${sqlText(spool)}, format = 'newline_delimited', maximum_object_size = 1048576, columns = {${columns.join(', ')}}))
       TO ${sqlText(temporary)} (FORMAT parquet, COMPRESSION snappy, ROW_GROUP_SIZE ${groupRows}, KV_METADATA {${sqlText(plainFromKey)}: '${mixed.length}'})`,
    );
    await syncFile(temporary);
    await crashPoint('checkpoint-written');
    // Before the checkpoint: one without its hash would be believed as those of version 0.1.0 are.
    const sha256 = await hashFile(temporary);
    await writeFileDurably(
      path.join(logFolder(tableDir), checkpointHashName(state.version)),
      `${sha256}\n`,
      tableFileMode,
    );
    await rename(temporary, final);
    await syncFolder(logFolder(tableDir));
    await crashPoint('checkpoint-renamed');
    // Spark keeps a checksum of what it has written under this name, and would refuse ours by it.
    await removeFile(path.join(logFolder(tableDir), '._last_checkpoint.crc'));
    await writeFileDurably(
      path.join(logFolder(tableDir), '_last_checkpoint'),
      JSON.stringify({ version: state.version, size: mixed.length + plain.length, sha256 }),
      tableFileMode,
    );
  } finally {
    await removeFile(temporary);
    await removeFile(spool);
  }
  return (await stat(final)).size;
}

/**
 * The hash that a checkpoint's bytes must have: from the file beside it, or, of one that version 0.1.0 wrote, from
 * `_last_checkpoint`.
 */
async function findCheckpointHash(tableDir: string, version: number): Promise<string | undefined> {
  const text = await findTextFile(path.join(logFolder(tableDir), checkpointHashName(version)));
  if (text !== undefined) return text.trim();
  const last = await findLastCheckpoint(tableDir);
  return last?.version === version ? last.sha256 : undefined;
}

/**
 * Says whether a checkpoint's bytes are those that were written, as far as a hash of them is there. Errors: ENOENT as
 * it is.
 */
export async function isCheckpointWhole(tableDir: string, version: number): Promise<boolean> {
  const sha256 = await findCheckpointHash(tableDir, version);
  return sha256 === undefined || (await hashFile(path.join(logFolder(tableDir), checkpointName(version)))) === sha256;
}

/**
 * Reads the actions of a checkpoint, some thousands at a time. Errors: `log_damaged` or `sql` when it cannot be read
 * whole.
 */
export async function* readCheckpoint(
  duckdb: Duckdb,
  tableDir: string,
  version: number,
): AsyncGenerator<readonly Action[]> {
  const file = path.join(logFolder(tableDir), checkpointName(version));
  if (!(await isCheckpointWhole(tableDir, version)))
    throw new AppError('log_damaged', `${file} is damaged: its bytes are not those that were written`, {
      hint: "Run 'tributary lake check', and restore what it names from a backup.",
    });
  yield* readActions(duckdb, file);
}

/** What `_last_checkpoint` says; undefined when it is not there or cannot be read. */
export async function findLastCheckpoint(
  tableDir: string,
): Promise<{ readonly version: number; readonly sha256?: string } | undefined> {
  const text = await findTextFile(path.join(logFolder(tableDir), '_last_checkpoint'));
  try {
    return text === undefined ? undefined : (JSON.parse(text) as { version: number; sha256?: string });
  } catch {
    return undefined;
  }
}
