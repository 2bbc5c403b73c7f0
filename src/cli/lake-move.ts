import { hostname } from 'node:os';
import path from 'node:path';
import { listSecondaryTables } from '../admin/backup/lake-copy.ts';
import { moveData } from '../admin/move/move.ts';
import { openBucket, openFolder, openSource, planMove, type MoveTarget } from '../admin/move/places.ts';
import { lockTable, settleTable } from '../admin/tables.ts';
import { connectBuckets, toPlace } from '../composition/storage.ts';
import { dataPaths, parseConfig, type Environment, type StoragePlaces } from '../config.ts';
import { settings } from '../config/settings.ts';
import { events } from '../datasets/dataset.ts';
import { listStaged } from '../lake/files/staging.ts';
import { compactorLease, hasTable, lakePaths, tablePaths } from '../lake/lake.ts';
import { findNewestState } from '../lake/log/change-feed.ts';
import { listLog } from '../lake/log/log-files.ts';
import { openTable } from '../lake/log/table.ts';
import { pause } from '../runtime/async/retry.ts';
import { createClock } from '../runtime/clock.ts';
import { noCrashPoint } from '../runtime/crash-point.ts';
import { AppError } from '../runtime/errors.ts';
import { ensureDataFolder } from '../runtime/files/data-format.ts';
import { exists } from '../runtime/files/file-checks.ts';
import { isWithin } from '../runtime/files/folder-id.ts';
import { acquireLock } from '../runtime/files/lock.ts';
import { findBuild } from '../runtime/files/package-files.ts';
import { buildWithClosers, type Closers } from '../runtime/lifecycle.ts';
import { createLogger, type Logger } from '../runtime/logger.ts';
import { readServiceStates } from '../runtime/processes/service-state.ts';
import { openHosts } from '../runtime/store/hosts.ts';
import { lockObjects, type ObjectLock } from '../runtime/store/object-lock.ts';
import { findLeases, openStore } from '../runtime/store/open-store.ts';
import { startService } from '../service.ts';
import { openConnection } from '../stream/connection.ts';
import { openReader } from '../stream/reader.ts';
import type { StreamReader } from '../stream/stream.ts';
import { assertNoStream } from './backup.ts';
import { defineCommand, resolveConfig, type DataContext } from './command.ts';
import { formatBytes, formatCount } from './human-output.ts';
import { failUsage, parsed, required } from './option-specs.ts';
import { findBroker } from './stop.ts';

const pollMs = 200;

function assertGoesOn(signal: AbortSignal): void {
  if (signal.aborted) throw new AppError('stopping', 'the move was stopped', { hint: 'Repeat the command.' });
}

const isBucket = (place: string): boolean => place.startsWith('s3://');

/** Parses the target: the address of a place in a bucket, or the absolute path of a folder. */
function parsePlace(text: string, what: string): string {
  if (!isBucket(text)) return path.resolve(text);
  return settings.storageUrl.parse(text, (rule) => failUsage(`${what} ${rule}, not '${text}'`)) ?? text;
}

const listPlaces = (of: StoragePlaces) => Object.values(of).filter((place) => place !== undefined);
const isInside = (place: string, other: string): boolean => `${place}/`.startsWith(`${other}/`);

/** Throws `usage` if places of the data and of a target in buckets are inside each other. */
function assertApart(to: string, storage: StoragePlaces): void {
  const targets = listPlaces(parseConfig({ TRIBUTARY_STORAGE_URL: to }).storage);
  const found = listPlaces(storage).find((place) =>
    targets.some((target) => isInside(place, target) || isInside(target, place)),
  );
  if (found !== undefined)
    throw new AppError('usage', `${to} and the present place ${found} overlap`, { hint: 'Pass a place elsewhere.' });
}

/** Connects to a place in a bucket, with the endpoint of the environment. Errors: `config_invalid`, `store_unsafe`. */
async function connectTarget(name: string, environment: Environment, scratchDir: string, closers: Closers) {
  const { s3Endpoint, s3PathStyle } = parseConfig({ ...environment, TRIBUTARY_STORAGE_URL: name });
  const { openS3Place } = await import('../runtime/store/s3-folders.ts');
  const options = { pathStyle: s3PathStyle, ...(s3Endpoint === undefined ? {} : { endpoint: s3Endpoint }) };
  const { open, close } = await openS3Place(options, toPlace(name), scratchDir);
  closers.add('bucket', close);
  const target = openBucket(name, open);
  await target.state.probe();
  return target;
}

/** Creates and locks a folder. `scratchDir`: that of the buckets. Errors: `usage`, `locked`, `disk`. */
async function createTarget(dataDir: string, scratchDir: string, closers: Closers): Promise<MoveTarget> {
  if ((await isWithin(dataDir, scratchDir)) || (await isWithin(scratchDir, dataDir)))
    throw new AppError('usage', `${dataDir} and the data folder ${scratchDir} overlap`, {
      hint: 'Pass a folder elsewhere.',
    });
  await ensureDataFolder(dataDir);
  const lock = acquireLock(dataDir, 'a move');
  closers.add('lock of the target', () => lock.release());
  return openFolder(dataDir, dataPaths(dataDir));
}

const locked = (what: string): AppError =>
  new AppError('locked', what, { hint: "Run 'tributary stop' there first, then repeat the command." });

/** Throws `locked` if a service runs on the data folder, or on another host that shares its buckets. */
async function assertStopped({ config, paths, stop }: DataContext, logger: Logger): Promise<void> {
  const [service] = readServiceStates(paths.run);
  if (service !== undefined) throw locked(`the service (pid ${service.pid}) runs on ${config.dataDir}`);
  if (findLeases(config.dataDir) === undefined) return;
  const self = { name: hostname(), roles: [], program: findBuild().version, startedAt: new Date().toISOString() };
  const hosts = openHosts(openStore(config.dataDir), self, { runFolder: paths.run, logger });
  for (;;) {
    const others = await hosts.list();
    const alive = others.find(({ isAlive }) => isAlive === true);
    if (alive !== undefined)
      throw locked(`the service of the host ${alive.name} (${alive.id}) uses ${config.storage.state}`);
    if (others.every(({ isAlive }) => isAlive === false)) return;
    assertGoesOn(stop);
    await pause(pollMs, stop);
  }
}

/** A compactor that reads nothing for this time is stuck, ms. */
const stuckMs = 60_000;

/** Waits until the lake has all messages of the stream. Errors: `overloaded` if it does not advance; `stopping`. */
async function awaitDrained(reader: StreamReader, tableDir: string, signal: AbortSignal): Promise<void> {
  let [reached, movedMs] = [-1, performance.now()];
  for (;;) {
    const { id, lastSequence } = await reader.state();
    const epoch = (await findNewestState(tableDir, (await listLog(tableDir)).commits))?.epoch;
    const position = epoch?.streamId === id ? epoch.position : -1;
    if (position >= lastSequence) return;
    if (position !== reached) [reached, movedMs] = [position, performance.now()];
    assertGoesOn(signal);
    if (performance.now() - movedMs > stuckMs)
      throw new AppError('overloaded', 'the compactor does not write the messages of the stream to the lake', {
        hint: "Start the service, and run 'tributary status' for the problem.",
      });
    await pause(pollMs, signal);
  }
}

/** Runs the broker and a compactor until the stream has nothing that the lake lacks. Errors: also those of a start. */
async function drainStream(context: DataContext, logger: Logger): Promise<void> {
  const { config, paths, entry, environment, stop: signal } = context;
  // A start would create another stream.
  if (config.natsUrl === undefined && !(await exists(path.join(paths.nats, 'store')))) await assertNoStream(context);
  await buildWithClosers(logger, async (closers) => {
    try {
      const soon = { ...environment, TRIBUTARY_FLUSH_AGE_MS: '100' };
      const service = await startService({ config, roles: ['compact'], entry, environment: soon, logger, signal });
      closers.add('service', () => service.stop());
      const broker = findBroker(config);
      if (broker === undefined)
        throw new AppError('broker_away', 'the broker has stopped', { hint: 'Repeat the move.' });
      const { url, streamName } = broker;
      const connection = await openConnection({ url, name: 'tributary-move', logger });
      closers.add('stream', () => connection.close());
      await awaitDrained(await openReader(connection, { streamName }), lakePaths(paths.lake).table, signal);
    } finally {
      await closers.stop();
    }
  });
}

const lockWaitMs = 30_000;

/**
 * Locks what a service works on, and settles interrupted changes of the lake. Returns the check of the locks. Error:
 * `locked`, also for a running load.
 */
async function lockSource({ config, paths, clock }: DataContext, closers: Closers): Promise<() => void> {
  const holder = 'a move';
  const locks: ObjectLock[] = [];
  const keep = (lock: ObjectLock): void => {
    locks.push(lock);
    closers.add('lock', () => lock.release());
  };
  const lake = { folder: paths.lake, lease: compactorLease };
  for (const { folder, ...lease } of [{ folder: config.dataDir }, { folder: paths.reports }, lake]) {
    keep(await lockObjects(folder, { ...lease, holder }, lockWaitMs));
  }
  for (const name of [...(await listSecondaryTables(paths.lake)), events]) {
    const { table: tableDir, staging } = tablePaths(paths.lake, name);
    keep(await lockTable(paths.lake, name, holder));
    await settleTable(await openTable(tableDir, { clock, crashPoint: noCrashPoint }), paths.lake);
    const [staged] = await listStaged(staging);
    if (staged === undefined) continue;
    throw new AppError('locked', `a load or another change of the lake is unfinished: ${path.join(staging, staged)}`, {
      hint: "Wait for it, or run 'tributary start' once, which settles it; then repeat the command.",
    });
  }
  return () => locks.forEach((lock) => lock.assertHeld());
}

/** Prints what the operator has to do next. */
async function printNotes(
  target: MoveTarget,
  { config, paths, environment, printMessage }: DataContext,
): Promise<void> {
  const { datasets, nats } = paths;
  const ofParts = ['TRIBUTARY_LAKE_URL', 'TRIBUTARY_REPORTS_URL', 'TRIBUTARY_STATE_URL'].filter(
    (name) => (environment[name] ?? '') !== '',
  );
  if (ofParts.length > 0) printMessage(`unset ${ofParts.join(', ')}: the data is in one place now`);
  if (config.datasetsDir === datasets && (await exists(datasets)))
    printMessage(`${datasets} was not moved: set TRIBUTARY_DATASETS_DIR to it or to a copy`);
  const isOwn = config.natsUrl === undefined;
  printMessage(
    target.paths === undefined
      ? `set TRIBUTARY_STORAGE_URL=${target.name}${isOwn ? `, and keep the data folder: the stream is in ${nats}` : ''}`
      : `pass --data ${target.name}, and unset TRIBUTARY_STORAGE_URL${isOwn ? '; the stream was copied too' : ''}`,
  );
}

async function move(
  context: DataContext,
  openTarget: (closers: Closers) => Promise<MoveTarget>,
  logger: Logger,
  closers: Closers,
) {
  const { config, paths, stop: signal, printProgress } = context;
  if (!(await hasTable(paths.lake, events)))
    throw new AppError('not_found', `no lake found in ${config.storage.lake ?? config.dataDir}`, {
      hint: 'Pass the data folder with --data, or set TRIBUTARY_STORAGE_URL.',
    });
  await assertStopped(context, logger);
  const { dataDir, isScratch, storage, natsUrl } = config;
  const name = storage.state?.replace(/\/state$/, '') ?? storage.lake ?? storage.reports ?? dataDir;
  const source = openSource({ name, dataDir, paths, isScratch, runsBroker: natsUrl === undefined });
  const target = await openTarget(closers);
  if ((await planMove(source, target)) === 'copy') {
    printProgress?.('lake move: committing the messages of the stream');
    await drainStream(context, logger);
    await assertStopped(context, logger);
  }
  const assertHeld = await lockSource(context, closers);
  const moved = await moveData(source, target, {
    signal,
    logger,
    crashPoint: noCrashPoint,
    async assertAlone() {
      assertHeld();
      await assertStopped(context, logger);
    },
    onProgress: ({ objects, bytes }) =>
      printProgress?.(`lake move: ${formatCount(objects)} objects, ${formatBytes(bytes)}`),
  });
  printProgress?.('');
  await printNotes(target, context);
  return { from: source.name, to: target.name, ...moved };
}

export const moveCommand = defineCommand({
  name: 'move',
  summary: 'move the data of a stopped service to a bucket, or from the bucket of the settings to a folder or bucket',
  details: [
    'Commits the messages of the stream to the lake, then copies and verifies lake, reports and state.',
    'Nothing is removed, but the source is marked as moved and rejects every start. Repeat an interrupted move: it continues.',
    'From bucket to bucket, both must be on the server of the settings.',
  ],
  options: {
    to: required(parsed('place in a bucket, as s3://BUCKET/PREFIX, or a new data folder', 'PLACE', parsePlace)),
  },
  examples: ['lake move --to s3://bucket/tributary', 'lake move --to /srv/tributary/data'],
  async run({ to, data }, context) {
    // The settings may be those of the target already.
    const url = context.environment['TRIBUTARY_STORAGE_URL'] || to;
    const isOfTarget = isBucket(to) && url.replace(/\/+$/, '') === to;
    const ofTarget = {
      TRIBUTARY_S3_ENDPOINT: undefined,
      TRIBUTARY_STORAGE_URL: undefined,
      TRIBUTARY_DOWNLOADS: undefined,
    };
    const environment = isOfTarget ? { ...context.environment, ...ofTarget } : context.environment;
    const config = resolveConfig(environment, { TRIBUTARY_DATA_DIR: data }, 'moved');
    const usesBucket = Object.values(config.storage).some((place) => place !== undefined);
    if (!usesBucket && !isBucket(to))
      throw new AppError('usage', 'the data is in a folder already', {
        hint: 'Pass s3://BUCKET/PREFIX; to use another folder, rename the folder while the service is stopped.',
      });
    if (isBucket(to)) assertApart(to, config.storage);
    await connectBuckets(config);
    const clock = createClock(config.clockOffsetSeconds);
    const opened = { ...context, environment, config, paths: dataPaths(config.dataDir), clock };
    const logger = createLogger(config.logLevel, { role: 'move' });
    const openTarget = (closers: Closers): Promise<MoveTarget> =>
      isBucket(to)
        ? connectTarget(to, context.environment, opened.paths.spool, closers)
        : createTarget(to, config.dataDir, closers);
    return await buildWithClosers(logger, async (closers) => {
      const result = await move(opened, openTarget, logger, closers);
      await closers.stop();
      return result;
    });
  },
});
