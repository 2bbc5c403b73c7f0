/**
 * The backup: the entire data folder as of one version of each table of the lake, made while the service runs.
 *
 * In: the data folder; the stream, read without acknowledging. Out: a folder (backup-folder.ts) from which `restore`
 * makes a data folder. Every event that was acknowledged before the backup began is in it once: as a row, a failed
 * event or a duplicate of the version, or in the tail. Order: most of the lake's files; the tail of the stream; the
 * version of the events, then those of the other tables, each under its maintenance lock; reports, segments, titles and
 * access; the manifest, which completes the backup. Events that the compactor commits and purges between the tail and
 * the version are in both; the position of the version shows it. A secondary table may be ahead of the events, as far
 * as the tail reaches, and is never behind.
 * Crash: the previous backup stays current until the manifest is replaced; the next run keeps what an interrupted one
 * has copied.
 */
import path from 'node:path';
import type { AccessPaths } from '../../access/access-file.ts';
import { ensureLakeId } from '../../lake/identity.ts';
import { datasets } from '../../datasets/dataset.ts';
import { cataloguePaths } from '../../lake/catalogue/catalogue-files.ts';
import { firstSeenFolder } from '../../lake/first-seen/first-seen-parts.ts';
import { lakePaths, listUnnamedTables, tablePaths } from '../../lake/lake.ts';
import { readSnapshot } from '../../lake/log/snapshot.ts';
import type { Clock } from '../../runtime/clock.ts';
import { findDataFormat } from '../../runtime/files/data-format.ts';
import { AppError, isAppError, isSystemError, isTransient } from '../../runtime/errors.ts';
import { isWithin } from '../../runtime/files/folder-id.ts';
import { listNames } from '../../runtime/files/folder-names.ts';
import type { Logger } from '../../runtime/logger.ts';
import { retry } from '../../runtime/async/retry.ts';
import type { StreamReader } from '../../stream/stream.ts';
import {
  copyAccess,
  copyAudit,
  copyDatasets,
  copyLists,
  copySchedules,
  keepMissing,
  type ListPaths,
  copyReports,
} from './record-copy.ts';
import { openBackupFolder, type BackupFolder } from './backup-folder.ts';
import { summarize, type BackupAnswer, type BackupFile, type BackupBacklog } from './backup-manifest.ts';
import { copyBulk, copySecondaryTables, copyLake, type LakeCopy, type LakeCopyOptions } from './lake-copy.ts';
import { captureBacklog, copyFrames, countFrames, type CapturedBacklog } from './stream-backlog.ts';

interface DataPaths extends AccessPaths, ListPaths {
  readonly audit: string;
  readonly claim: string;
  readonly nats: string;
  readonly lake: string;
  readonly reports: string;
  readonly spool: string;
  readonly run: string;
}

export interface BackupSource {
  readonly dataDir: string;
  readonly paths: DataPaths;
  readonly datasetsDir: string;
  /** Runs work on the stream, or with undefined. As short as possible: it may start the broker of a stopped service. */
  readonly withStream: <T>(work: (reader: StreamReader | undefined) => Promise<T>) => Promise<T>;
}

interface BackupOptions {
  readonly clock: Clock;
  readonly link: boolean;
  readonly signal: AbortSignal;
  readonly logger: Logger;
}

/** Longest wait for a restarting broker, ms. */
const brokerAwayMs = 60_000;
const brokerRetryMs = 500;
const captures = 5;

async function assertPlaces(dataDir: string, dir: string): Promise<void> {
  if (!(await isWithin(dir, dataDir)) && !(await isWithin(dataDir, dir))) return;
  throw new AppError('usage', `the backup ${dir} and the data folder ${dataDir} overlap`, {
    hint: 'Pass a folder elsewhere, preferably on another disk.',
  });
}

/** Warns about foreign entries of the data folder, which are not in the backup. */
async function warnOfStrangers({ dataDir, paths, datasetsDir }: BackupSource, logger: Logger): Promise<void> {
  const lake = lakePaths(paths.lake);
  const unnamed = await listUnnamedTables(paths.lake);
  const tables = [...datasets.values(), ...unnamed].map((dataset) => tablePaths(paths.lake, dataset).table);
  const derived = [...Object.values(cataloguePaths(paths.lake)), firstSeenFolder(paths.lake)];
  const places = [datasetsDir, ...Object.values(paths), ...Object.values(lake), ...derived, ...tables];
  const known = new Set(places.map((place) => path.resolve(place)));
  const others = /^(\.lock|format\.json|identity\.json|lost\+found|tmp|.*\.tmp)$/;
  for (const folder of [dataDir, paths.lake]) {
    const names = await listNames(folder).catch(() => []);
    const strange = names.filter((name) => !known.has(path.resolve(folder, name)) && !others.test(name));
    if (strange.length > 0) logger.warn({ folder, names: strange }, 'foreign entries left out of the backup');
  }
}

async function readStreamBacklog(
  source: BackupSource,
  target: BackupFolder,
  { signal, logger }: BackupOptions,
): Promise<CapturedBacklog | undefined> {
  const { table } = lakePaths(source.paths.lake);
  const findEpoch = async () => (await readSnapshot(table)).lake?.epoch;
  const file = target.workPath('tail');
  return await retry(
    () =>
      source.withStream(async (reader) =>
        reader === undefined ? undefined : captureBacklog(reader, { findEpoch, file, signal, logger }),
      ),
    { forMs: brokerAwayMs, everyMs: brokerRetryMs, signal, retryable: isTransient },
  );
}

/** Stores the messages of the tail that the version lacks; undefined without any. */
async function storeBacklog(
  backlog: CapturedBacklog | undefined,
  { epoch }: LakeCopy,
  target: BackupFolder,
): Promise<BackupBacklog | undefined> {
  if (backlog === undefined) return undefined;
  const position = epoch?.streamId === backlog.stream ? epoch.position : 0;
  const messages = await countFrames(backlog.file, position);
  if (messages === 0) return undefined;
  return { stream: backlog.stream, messages, ...(await target.write(copyFrames(backlog.file, position))) };
}

/** Copies the secondary tables up to the backup's position; undefined if their own can no longer be determined. */
async function tryCopySecondaryTables(
  target: BackupFolder,
  { epoch }: LakeCopy,
  backlog: CapturedBacklog | undefined,
  copying: LakeCopyOptions,
): Promise<BackupFile[] | undefined> {
  // Of another stream, or without a stream, no table has a message that the events lack.
  const bound =
    epoch === undefined || epoch.streamId !== backlog?.stream
      ? undefined
      : { appId: epoch.appId, sequence: Math.max(epoch.position, backlog.lastSequence) };
  try {
    return await copySecondaryTables(target, bound, copying);
  } catch (error) {
    if (!isAppError(error, 'commit_conflict')) throw error;
    return undefined;
  }
}

/** Copies a tail and a version that belong together; reads both again if the lake has started another epoch. */
async function copyConsistently(
  source: BackupSource,
  target: BackupFolder,
  options: BackupOptions,
  copying: LakeCopyOptions,
): Promise<{ lake: LakeCopy; backlog: CapturedBacklog | undefined }> {
  const { table } = lakePaths(source.paths.lake);
  for (let capture = 1; ; capture += 1) {
    const before = (await readSnapshot(table)).lake?.epoch?.appId;
    const backlog = await readStreamBacklog(source, target, options);
    const eventsCopy = await copyLake(target, copying);
    const secondaryTables = await tryCopySecondaryTables(target, eventsCopy, backlog, copying);
    const lake = { ...eventsCopy, files: [...eventsCopy.files, ...(secondaryTables ?? [])] };
    const after = (await readSnapshot(table)).lake?.epoch?.appId;
    const isSettled =
      secondaryTables !== undefined &&
      ((eventsCopy.epoch?.appId === before && after === before) || backlog === undefined);
    if (isSettled) return { lake, backlog };
    if (capture === captures)
      throw new AppError('overloaded', "the lake's position in the stream keeps changing", {
        hint: "Check the stream with 'tributary status', then run the backup again.",
      });
  }
}

async function assertSameLake({ paths }: BackupSource, { dir, manifest }: BackupFolder): Promise<void> {
  const before = manifest?.lake;
  if (before === undefined) return;
  const isThere = (await readSnapshot(lakePaths(paths.lake).table)).version >= 0;
  const id = isThere ? await ensureLakeId(paths.lake) : 'none';
  if (id === before) return;
  throw new AppError('conflict', `${dir} has the backup of another lake: ${before}, not ${id}`, {
    hint: 'Pass another folder, or remove that backup first.',
  });
}

async function run(source: BackupSource, target: BackupFolder, options: BackupOptions): Promise<BackupAnswer> {
  const { paths } = source;
  const { clock, link, signal, logger } = options;
  const madeAt = new Date(clock.nowMs()).toISOString();
  const copying = { lakeDir: paths.lake, clock, link, signal };
  await assertSameLake(source, target);
  await warnOfStrangers(source, logger);
  await copyBulk(target, copying);
  const { lake, backlog } = await copyConsistently(source, target, options, copying);
  const stored = await storeBacklog(backlog, lake, target);
  const unnamed = await listUnnamedTables(paths.lake);
  const declared = await copyDatasets(target, source.datasetsDir, unnamed.length > 0);
  const schedules = await copySchedules(target, paths);
  const reports = await copyReports(target, { reportsDir: paths.reports, signal, logger });
  const lists = await copyLists(target, paths, logger);
  const missing = await keepMissing(target, source.dataDir, [...schedules, ...lists]);
  const audit = await copyAudit(target, paths);
  const access = await copyAccess(target, paths);
  const position = lake.epoch?.position ?? 0;
  const manifest = {
    madeAt,
    folderFormat: findDataFormat(source.dataDir)?.format ?? 0,
    ...(lake.id === undefined ? {} : { lake: lake.id }),
    lakeVersion: lake.version,
    sequence:
      backlog === undefined || (lake.epoch !== undefined && lake.epoch.streamId === backlog.stream)
        ? Math.max(position, backlog?.lastSequence ?? 0)
        : backlog.lastSequence,
    files: [...lake.files, ...declared, ...schedules, ...reports, ...lists, ...missing, ...audit, ...access],
    ...(stored === undefined ? {} : { tail: stored }),
  };
  const removed = await target.finish(manifest);
  const summary = summarize(manifest);
  logger.info({ dir: target.dir, ...summary, messagesInTail: stored?.messages ?? 0, removed }, 'backup finished');
  return summary;
}

/**
 * Makes or renews the backup of a data folder in `dir`. Errors: `usage` (paths), `locked`, `conflict` (the backup of
 * another lake), `file_damaged` (without an intact copy in the backup), `broker_away`, `disk`, `stopping`. After an
 * error the previous backup is still current.
 */
export async function makeBackup(source: BackupSource, dir: string, options: BackupOptions): Promise<BackupAnswer> {
  await assertPlaces(source.dataDir, dir);
  try {
    const target = await openBackupFolder(dir, {
      spareLock: path.join(source.paths.run, 'backup'),
      logger: options.logger,
    });
    try {
      return await run(source, target, options);
    } finally {
      await target.close();
    }
  } catch (error) {
    if (!isSystemError(error, 'ENOSPC', 'EDQUOT', 'EIO', 'EROFS', 'EACCES', 'EPERM', 'EFBIG')) throw error;
    throw new AppError('disk', `cannot finish the backup into ${dir}`, {
      cause: error,
      hint: 'Remove the cause, such as a full disk, and run the backup again; a previous backup in the folder is intact.',
      retryable: false,
    });
  }
}
