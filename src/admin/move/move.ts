/**
 * The move: brings the data of a stopped service from a data folder to a bucket, from there to another one, or back.
 *
 * In: lake, reports and state of a source that no process changes; the stream has nothing that the lake lacks. Out: the
 * same in the target, compared with the hashes that log and records have, or byte by byte.
 * Invariant: at any moment, at most one of the two places can be started: the source until it is marked as moved, the
 * target once its mark of an unfinished move is replaced. Nothing of the source is removed, and no data of another
 * source is overwritten.
 * Order: mark of the target; data files, other objects, reports, state; logs, with the newest entry of the events last;
 * records that have changed meanwhile; mark of the source; end of the target's mark.
 * Crash: the move is repeated. It keeps what the target has already, and removes what the source no longer has.
 */
import { randomUUID } from 'node:crypto';
import path from 'node:path';
import type { CrashPoint } from '../../runtime/crash-point.ts';
import { describeError } from '../../runtime/errors.ts';
import { dataFormat } from '../../runtime/files/data-format.ts';
import { copyFolder, ensureFolders } from '../../runtime/files/durable-file.ts';
import { exists } from '../../runtime/files/file-checks.ts';
import { removeTree } from '../../runtime/files/work-files.ts';
import type { Logger } from '../../runtime/logger.ts';
import type { ObjectStore } from '../../runtime/store/object-store.ts';
import { findStoredFormat, writeStoredFormat } from '../../runtime/store/stored-format.ts';
import { openCopy, type CopyOptions } from './copy-objects.ts';
import { listLake, listReports, listState } from './moved-objects.ts';
import { getMark, markSource, nameSource, planMove, type MoveSource, type MoveTarget } from './places.ts';

export const moveSteps = [
  'target-marked',
  'object-copied',
  'files-copied',
  'others-copied',
  'reports-copied',
  'state-copied',
  'log-copied',
  'newest-copied',
  'broker-copied',
  'source-marked',
] as const;

export interface MoveOptions {
  readonly signal: AbortSignal;
  readonly logger: Logger;
  readonly crashPoint: CrashPoint;
  /** Throws unless the source is still locked and its service stopped. */
  readonly assertAlone: () => Promise<void>;
  /** Called for each object that is in the target, with the sums so far. */
  readonly onProgress: (moved: { readonly objects: number; readonly bytes: number }) => void;
}

export interface MoveResult {
  readonly tables: number;
  /** Number of data files. */
  readonly files: number;
  /** Number of export requests. */
  readonly reports: number;
  /** Number and size of all objects, data files included. */
  readonly objects: number;
  readonly bytes: number;
}

const listAll = (store: ObjectStore): Promise<readonly string[]> => store.list('');

/** Copies the objects. Calls `assertOnly` before the newest entry of the events. */
async function copyObjects(
  source: MoveSource,
  target: MoveTarget,
  { crashPoint, signal, logger, onProgress }: MoveOptions,
  assertOnly: () => Promise<void>,
): Promise<MoveResult> {
  const scratchDir = path.join((target.paths ?? source.paths).spool, 'move');
  await removeTree(scratchDir);
  await ensureFolders([scratchDir, ...[target.lake, target.reports].flatMap(({ folder }) => folder ?? [])]);
  let [objects, bytes] = [0, 0];
  const onCopied = (size: number): void => onProgress({ objects: (objects += 1), bytes: (bytes += size) });
  const copying = { scratchDir, signal, crashPoint, onCopied };
  const listParts = (store: ObjectStore): Promise<readonly string[]> => listState(store, source);
  const [lake, reports] = [await listLake(source.paths.lake), await listReports(source.reports)];
  const lakeCopy = await openCopy(source.lake, target.lake, listAll, copying);
  const reportCopy = await openCopy(source.reports, target.reports, listAll, copying);
  const copyState = async (options: CopyOptions): Promise<void> => {
    const copy = await openCopy(source.state, target.state, listParts, options);
    await copy.copy((await listParts(source.state)).map((key) => ({ key })));
    await copy.removeOthers();
  };

  await lakeCopy.copy(lake.files);
  await crashPoint('files-copied');
  await lakeCopy.copy(lake.others);
  await crashPoint('others-copied');
  await reportCopy.copy(reports.objects, (error) =>
    logger.warn({ error: describeError(error) }, 'damaged report file left out of the move'),
  );
  await crashPoint('reports-copied');
  await copyState(copying);
  await crashPoint('state-copied');
  await lakeCopy.copy(lake.log);
  await crashPoint('log-copied');
  await assertOnly();
  await lakeCopy.copy([lake.newest]);
  for (const copy of [lakeCopy, reportCopy]) await copy.removeOthers();
  // Again: commands may have changed records meanwhile.
  await copyState({ ...copying, onCopied: () => undefined });
  await removeTree(scratchDir);
  await crashPoint('newest-copied');
  return { tables: lake.tables, files: lake.files.length, reports: reports.requests, objects, bytes };
}

/** Copies the store of the service's own broker to a data folder: it has the anchor of the lake, and the claim. */
async function copyBroker({ paths, runsBroker }: MoveSource, target: MoveTarget): Promise<void> {
  if (target.paths === undefined || !runsBroker || !(await exists(paths.nats))) return;
  await removeTree(target.paths.nats);
  await copyFolder(paths.nats, target.paths.nats);
}

/**
 * Moves the data. Returns undefined if a killed move had copied all. Errors: those of `planMove`; `file_damaged` for
 * damaged or missing objects; `conflict` if another move begins; `stopping`; those of the stores.
 */
export async function moveData(
  source: MoveSource,
  target: MoveTarget,
  options: MoveOptions,
): Promise<MoveResult | undefined> {
  const { crashPoint, assertAlone } = options;
  const [plan, from, move] = [await planMove(source, target), await nameSource(source), randomUUID()];
  const findMark = () => getMark(target, from, plan === 'copy' ? move : undefined);
  const assertOnly = async (): Promise<void> => {
    await assertAlone();
    await findMark();
  };
  let result: MoveResult | undefined;
  if (plan === 'copy') {
    const mark = { format: dataFormat, restoring: true, movedFrom: from, move };
    await writeStoredFormat(target.state, mark, await findStoredFormat(target.state));
    await crashPoint('target-marked');
    result = await copyObjects(source, target, options, assertOnly);
    await copyBroker(source, target);
    await crashPoint('broker-copied');
    await assertOnly();
  }
  await markSource(source, target.name);
  await crashPoint('source-marked');
  await writeStoredFormat(target.state, { format: dataFormat }, await findMark());
  return result;
}
