import path from 'node:path';
import type { Duckdb } from '../sql/duckdb.ts';
import { sqlText } from '../sql/literals.ts';
import { type Action, type AddFilter, logDamaged } from './actions.ts';
import { checkpointRows, groupRows, plainFromKey, readActions, spoolSql, writeSpool } from './checkpoint-rows.ts';
import { checkpointHashName, checkpointName, logFolder, logStore } from './log-files.ts';
import { removeFile, syncFile } from '../../runtime/files/durable-file.ts';
import type { CrashPoint } from '../../runtime/crash-point.ts';
import { hashFile, getSize } from '../../runtime/files/file-checks.ts';
import type { TableState } from './table-state.ts';
import { hashStored, localFiles } from '../../runtime/store/open-store.ts';
import { isCount, isText, optional, shapeOf } from '../../runtime/store/shape.ts';
import { missingObject, findText } from '../../runtime/store/object-store.ts';

export const checkpointSteps = ['checkpoint-written', 'checkpoint-renamed'] as const;

/** Writes a checkpoint, then `_last_checkpoint`, each atomically. Returns its size, bytes. */
export async function writeCheckpoint(
  duckdb: Duckdb,
  tableDir: string,
  state: Readonly<TableState>,
  crashPoint: CrashPoint,
): Promise<number> {
  const store = logStore(tableDir);
  const name = checkpointName(state.version);
  const temporary = store.localPath(name);
  const spool = store.localPath(`${name}.tsv`);
  try {
    const { mixed, plain } = checkpointRows(state);
    await writeSpool(spool, { mixed, plain });
    await duckdb.run(
      `COPY (${spoolSql(spool)})
       TO ${sqlText(temporary)} (FORMAT parquet, COMPRESSION snappy, ROW_GROUP_SIZE ${groupRows}, KV_METADATA {${sqlText(plainFromKey)}: '${mixed.length}'})`,
    );
    await syncFile(temporary);
    await crashPoint('checkpoint-written');
    // Hashed first: a checkpoint without a hash would be trusted, like those of 0.1.0.
    const sha256 = await hashFile(temporary);
    await store.replace(checkpointHashName(state.version), Buffer.from(`${sha256}\n`), 'any');
    const sizeBytes = await getSize(temporary);
    await store.upload(name, temporary, { sha256 });
    await crashPoint('checkpoint-renamed');
    // Spark may have stored a checksum of another file here, and would refuse this one.
    await store.remove(['._last_checkpoint.crc']);
    const last = { version: state.version, size: mixed.length + plain.length, sha256 };
    await store.replace('_last_checkpoint', Buffer.from(JSON.stringify(last)), 'any');
    return sizeBytes;
  } finally {
    await removeFile(temporary);
    await removeFile(spool);
  }
}

/** Returns the expected hash of a checkpoint. Version 0.1.0 wrote it to `_last_checkpoint`. */
async function findCheckpointHash(tableDir: string, version: number): Promise<string | undefined> {
  const text = await findText(logStore(tableDir), checkpointHashName(version));
  if (text !== undefined) return text.trim();
  const last = await findLastCheckpoint(tableDir);
  return last?.version === version ? last.sha256 : undefined;
}

/** Reports whether a checkpoint has its expected hash, if there is one. */
export async function isCheckpointIntact(tableDir: string, version: number): Promise<boolean> {
  const sha256 = await findCheckpointHash(tableDir, version);
  if (sha256 === undefined) return true;
  return (await hashStored({ absolutePath: path.join(logFolder(tableDir), checkpointName(version)) })) === sha256;
}

/**
 * Reads the actions of a checkpoint in batches, those of `needed` as in `readActions`. Errors: ENOENT; `log_damaged` or
 * `sql` for an incomplete read.
 */
export async function readCheckpoint(
  duckdb: Duckdb,
  tableDir: string,
  version: number,
  take: (actions: readonly Action[]) => void,
  needed?: AddFilter,
): Promise<void> {
  const store = logStore(tableDir);
  const name = store.nameOf(checkpointName(version));
  if ((await store.findSize(checkpointName(version))) === undefined) throw missingObject(name);
  const sha256 = await findCheckpointHash(tableDir, version);
  const absolutePath = path.join(logFolder(tableDir), checkpointName(version));
  await localFiles.use([{ absolutePath, sha256 }], async ([file = '']) => {
    if (sha256 !== undefined && (await hashFile(file)) !== sha256)
      throw logDamaged(`${name} is damaged: checksum mismatch`);
    for await (const actions of readActions(duckdb, file, needed)) take(actions);
  });
}

type Pointer = { readonly version: number; readonly sha256?: string };

const isPointer = shapeOf<Pointer>({ version: isCount, sha256: optional(isText) });

/** Reads `_last_checkpoint`; undefined if it is missing or unreadable. */
export async function findLastCheckpoint(tableDir: string): Promise<Pointer | undefined> {
  const text = await findText(logStore(tableDir), '_last_checkpoint');
  try {
    const pointer: unknown = JSON.parse(text ?? 'null');
    return isPointer(pointer) ? pointer : undefined;
  } catch {
    return undefined;
  }
}
