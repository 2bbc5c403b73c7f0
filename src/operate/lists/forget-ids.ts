import path from 'node:path';
import type { Duckdb } from '../../lake/sql/duckdb.ts';
import { sqlList, sqlText } from '../../lake/sql/literals.ts';
import { AppError } from '../../runtime/errors.ts';
import { exists, findSize, hashFile } from '../../runtime/files/file-checks.ts';
import { openWorkRoom } from '../../runtime/files/work-room.ts';
import { changeSegment, listSegments } from '../../segments/segment-store.ts';
import type { Segment, SegmentKind } from '../../segments/segments.ts';
import { openSortEngine, writeListFile, type ListOptions } from './add-segment.ts';

/** The ids of erased users or devices, which may stand in segments. */
export interface ForgottenIds {
  readonly kind: SegmentKind;
  readonly ids: readonly string[];
  /** Only segments of this account; absent: of all. */
  readonly idAccount?: number;
}

/** Refuses to rewrite a segment whose bytes are not those that were written. */
async function assertWhole({ file, sizeBytes, sha256, idSegment, idAccount }: Segment): Promise<void> {
  if ((await findSize(file)) === sizeBytes && (await hashFile(file)) === sha256) return;
  throw new AppError('file_damaged', `${file} is damaged or gone: no id can be taken out of it`, {
    hint: `Add segment ${idSegment} of account ${idAccount} anew, or remove it; then repeat the command.`,
  });
}

/** Writes a segment without some ids; undefined where it has none of them. */
async function rewrite(
  engine: Duckdb,
  dir: string,
  segment: Segment,
  ids: readonly string[],
): Promise<{ readonly file: string; readonly ids: number } | undefined> {
  await assertWhole(segment);
  const source = `read_parquet([${sqlText(segment.file)}], hive_partitioning = false)`;
  const named = `(SELECT unnest(CAST(${sqlList(ids)} AS VARCHAR[])))`;
  const [row] = await engine.rows(`SELECT count(*) AS found FROM ${source} WHERE id IN ${named}`);
  if (Number(row?.['found']) === 0) return undefined;
  const file = path.join(dir, `${segment.idAccount}-${segment.idSegment}.parquet`);
  return {
    file,
    ids: await writeListFile(engine, `SELECT id FROM ${source} WHERE id NOT IN ${named} ORDER BY id`, file),
  };
}

/**
 * Takes ids out of all segments that have them, so that an erased person is in no file of the data folder; returns how
 * many segments had any. Errors: `file_damaged`, `record_damaged`, `locked`, `disk`, `memory`.
 */
export async function forgetIds(
  segmentsDir: string,
  { kind, ids, idAccount }: ForgottenIds,
  options: ListOptions,
): Promise<number> {
  if (!(await exists(segmentsDir))) return 0;
  // Also removes what a killed command has left of its list.
  const room = await openWorkRoom(path.join(segmentsDir, 'work'), 'erase');
  try {
    const segments = (await listSegments(segmentsDir, idAccount)).filter((segment) => segment.kind === kind);
    if (segments.length === 0) return 0;
    const engine = await openSortEngine(room.dir, options);
    let changed = 0;
    try {
      for (const segment of segments)
        await changeSegment(segmentsDir, segment, async (before) => {
          const rewritten = before.kind === kind ? await rewrite(engine, room.dir, before, ids) : undefined;
          if (rewritten !== undefined) changed += 1;
          return rewritten;
        });
    } finally {
      engine.close();
    }
    return changed;
  } finally {
    await room.close();
  }
}
