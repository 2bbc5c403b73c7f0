import path from 'node:path';
import { defined } from '../runtime/files/checksummed-json.ts';
import { listApps } from '../access/apps.ts';
import { lakeStore } from '../lake/files/data-file.ts';
import { listHosts } from '../runtime/store/hosts.ts';
import { findLeases, openStore } from '../runtime/store/open-store.ts';
import { askHosts } from '../stream/refusal-queries.ts';
import { ensureLake, isCompactorRunning } from '../lake/lake.ts';
import type { DrainDependencies } from '../admin/erase/drain.ts';
import { eraseEvents } from '../admin/erase/erase.ts';
import { dryRunErasure, type ErasureDryRun } from '../admin/erase/survey.ts';
import type { UserIdScope } from '../admin/erase/erase-table.ts';
import { userKinds, type ErasureTarget } from '../admin/erase/erase-target.ts';
import { removeIdsFromSegments, type SegmentIdsToRemove } from '../admin/lists/add-segment.ts';
import { removeRefusals } from '../refusals/refusal-files.ts';
import { AppError } from '../runtime/errors.ts';
import { getTextFile } from '../runtime/files/input-file.ts';
import { removeStaleScratchDirs } from '../runtime/files/work-files.ts';
import { buildWithClosers, type Closers } from '../runtime/lifecycle.ts';
import { withFormerNames } from '../runtime/former-names.ts';
import { createLogger, type Logger } from '../runtime/logger.ts';
import { readServiceStates } from '../runtime/processes/service-state.ts';
import { startService } from '../service.ts';
import { openConnection, type StreamConnection } from '../stream/connection.ts';
import { openGuard } from '../stream/guard.ts';
import { openPublisher } from '../stream/publisher.ts';
import { defineDataCommand, queryScratchDir, type DataContext, type OpenData, type OptionValues } from './command.ts';
import { file, flag, oneOf, positive, failUsage, text, withDefault } from './option-specs.ts';
import { withEvents } from './lake-engine.ts';
import { findBroker } from './stop.ts';

const eraseOptions = {
  user: text('id of the user whose events to erase', 'ID'),
  device: text('id of the device whose events to erase', 'ID'),
  file: file('file of user or device ids to erase, one per line'),
  idType: withDefault(oneOf(['user', 'device'], 'type of the ids in --file'), 'user'),
  userIdType: oneOf(userKinds, 'type of the user ids; needed if an id exists in several types'),
  app: positive('id of the app whose events to erase', 'ID'),
  account: positive('only apps of this account'),
  dryRun: flag('count matching events without erasing them'),
  yes: flag('skip the confirmation prompt'),
  skipRetention: flag('delete old versions at once; running queries may fail'),
} as const;

export type EraseOptionValues = Partial<OptionValues<typeof eraseOptions>>;

/** The account of an app, removed apps included. */
export interface AccountOfApp {
  readonly idApp: string;
  readonly idAccount: string;
}

const named = 3;

/** Reads ids, one per line; spaces are part of an id. */
async function readIds(name: string): Promise<string[]> {
  const lines = await getTextFile(name).catch((error: unknown) => {
    throw new AppError('usage', `cannot read ${name}`, { cause: error });
  });
  return [...new Set(lines.split(/\r?\n/).filter((line) => line !== ''))];
}

/** Returns the app of `--app`, or all apps of `--account`, removed ones included. */
export function parseApps(
  app: number | undefined,
  account: number | undefined,
  listAllApps: () => readonly AccountOfApp[],
): number[] | undefined {
  if (app !== undefined && account !== undefined) failUsage('--app and --account exclude each other');
  if (app !== undefined) return [app];
  if (account === undefined) return undefined;
  const idAccount = String(account);
  const apps = listAllApps()
    .filter((each) => each.idAccount === idAccount)
    .map(({ idApp }) => Number(idApp));
  if (apps.length === 0)
    throw new AppError('not_found', `account ${idAccount} has no app`, {
      hint: "Run 'tributary app list' for all apps.",
    });
  return apps;
}

export async function parseErasure(
  { user, device, app, account, userIdType: userKind, file: list, idType = 'user' }: EraseOptionValues,
  listAllApps: () => readonly AccountOfApp[],
): Promise<ErasureTarget> {
  if (list !== undefined && (idType === 'user' ? user : device) !== undefined)
    failUsage(`--${idType} and --file exclude each other: add the id to the file`);
  const ids = list === undefined ? undefined : await readIds(list);
  const users = ids !== undefined && idType === 'user' ? ids : user === undefined ? undefined : [user];
  const devices = ids !== undefined && idType === 'device' ? ids : device === undefined ? undefined : [device];
  if (userKind !== undefined && users === undefined) failUsage('--user-id-type needs --user or --file');
  const apps = parseApps(app, account, listAllApps);
  // `--account` alone would erase a whole account.
  if (users === undefined && devices === undefined && app === undefined)
    failUsage("'erase' needs --user, --device, --file or --app");
  return defined({ users, userKind, devices, apps });
}

function describeIds(ids: readonly string[]): string {
  return `${ids
    .slice(0, named)
    .map((id) => `'${id}'`)
    .join(', ')}${ids.length > named ? ` and ${ids.length - named} more` : ''}`;
}

/** Returns the ids with several meanings, by a property of a meaning. */
function findAmbiguous(found: readonly UserIdScope[], of: (meaning: UserIdScope) => string): string[] {
  const seen = new Map<string, Set<string>>();
  for (const meaning of found) seen.set(meaning.id, (seen.get(meaning.id) ?? new Set()).add(of(meaning)));
  return [...seen].flatMap(([id, meanings]) => (meanings.size > 1 ? [id] : []));
}

/**
 * Rejects ids of several people: user ids of several types, or in apps of several accounts. Error: `usage`, with the
 * option that distinguishes them.
 */
export function assertUnambiguousIds(
  found: readonly UserIdScope[],
  target: ErasureTarget,
  listAllApps: () => readonly AccountOfApp[],
  consequence = 'nothing was erased',
): void {
  if (target.apps === undefined) {
    const accounts = new Map(listAllApps().map(({ idApp, idAccount }) => [Number(idApp), idAccount]));
    const several = findAmbiguous(found, ({ idApp }) => accounts.get(idApp) ?? `the account of app ${idApp}`);
    if (several.length > 0)
      throw new AppError('usage', `${describeIds(several)} occurs in events of several accounts; ${consequence}`, {
        hint: 'Pass --account or --app.',
      });
  }
  if (target.userKind !== undefined) return;
  const several = findAmbiguous(found, ({ kind }) => kind);
  if (several.length > 0)
    throw new AppError(
      'usage',
      `${describeIds(several)} occurs as user ids of several types (${[...new Set(found.map(({ kind }) => kind))].join(', ')}); ${consequence}`,
      { hint: 'Pass --user-id-type.' },
    );
}

/**
 * Returns the ids to remove from segments: custom user ids or device ids, of one account if it is named. None if only
 * some of a person's events match: those of one app, or of a user on one device.
 */
export function findIdsToRemove(
  { users, userKind, devices }: ErasureTarget,
  { app, account }: { readonly app?: number | undefined; readonly account?: number | undefined },
): SegmentIdsToRemove | undefined {
  if (app !== undefined || (users !== undefined && devices !== undefined)) return undefined;
  const within = account === undefined ? {} : { idAccount: account };
  if (devices !== undefined) return { kind: 'device', ids: devices, ...within };
  const isCustom = userKind === undefined || userKind === 'custom';
  return users !== undefined && isCustom ? { kind: 'custom', ids: users, ...within } : undefined;
}

/** Returns half of the memory setting: the rest is for the program and uncounted memory of the engine. */
export function engineLimits({ config: { duckdbMemoryMb } }: OpenData): { memoryMb: number; threads: number } {
  return { memoryMb: Math.max(128, Math.ceil(duckdbMemoryMb / 2)), threads: duckdbMemoryMb < 1024 ? 1 : 2 };
}

interface Erasure {
  readonly target: ErasureTarget;
  readonly forgotten: SegmentIdsToRemove | undefined;
  readonly listAllApps: () => readonly AccountOfApp[];
  readonly context: DataContext;
  /** Whether to delete old versions at once. */
  readonly now: boolean;
}

/** Shows the number of matching events, and asks for confirmation. Error: `usage` unless confirmed. */
async function confirmErasure({ now, context }: Erasure, survey: ErasureDryRun): Promise<void> {
  const { config, clock } = context;
  const { rows, failedEvents, quarantinedRows = 0, filesToRewrite, tables = {} } = survey;
  const perTable = Object.entries(tables).map(([table, found]) => `${table} ${found.rows}`);
  const ofTables = perTable.length === 0 ? '' : ` (${perTable.join(', ')})`;
  const history = now
    ? 'at once; running queries fail'
    : `at ${new Date(clock.nowMs() + config.retentionMs).toISOString()}`;
  context.printMessage(
    `${rows} rows${ofTables} in ${filesToRewrite} files, ${failedEvents} failed events, ${quarantinedRows} rows in quarantine and matching events of the backlog will be erased permanently. Older versions of the lake are deleted ${history}.`,
  );
  if (!(await context.confirm?.('Erase them?')))
    throw new AppError('usage', 'nothing was erased', { hint: 'Answer yes, or pass --yes.' });
}

/** Opens the stream of the running service, or of one that is started for the erasure. */
async function openErasureStream({ config, paths, entry, environment }: DataContext, logger: Logger, closers: Closers) {
  const states = readServiceStates(paths.run);
  // A killed compactor is restarted by its supervisor.
  const isSupervised = states.some(({ processes }) => processes.some(({ name }) => name === 'compact'));
  if (!isSupervised && !(await isCompactorRunning(paths.lake))) {
    const service = await startService({ config, roles: ['compact'], entry, environment, logger });
    closers.add('service', () => service.stop());
  }
  const brokerConnection = findBroker(config);
  if (brokerConnection === undefined)
    throw new AppError('broker_away', 'cannot find the broker of the running service', {
      hint: 'Set TRIBUTARY_NATS_URL.',
    });
  const connection = await openConnection({ url: brokerConnection.url, name: 'tributary erase', logger });
  closers.add('stream', () => connection.close());
  const guard = await openGuard(connection, {
    streamName: brokerConnection.streamName,
    claimFile: paths.claim,
    logger,
  });
  closers.add('stream guard', () => guard.stop());
  return {
    connection,
    publisher: openPublisher(connection, guard),
    ...(brokerConnection.isOwn ? { storeDir: path.join(paths.nats, 'store') } : {}),
  };
}

/** Removes the rejected requests of this host, and of all hosts that share its buckets. Returns whether there were any. */
async function removeAllRefusals(
  { config, paths, printMessage }: DataContext,
  connection: StreamConnection,
  apps: readonly number[] | undefined,
): Promise<boolean> {
  const own = await removeRefusals(paths.refusals, apps);
  if (findLeases(config.dataDir) === undefined) return own;
  const hosts = (await listHosts(openStore(config.dataDir))).filter(({ roles }) =>
    roles.some((role) => role !== 'export'),
  );
  const answers = await askHosts(connection, config.streamName, { removeApps: apps ?? 'all' }, hosts.length);
  if (answers.length < hosts.length)
    printMessage(
      `${answers.length} of ${hosts.length} hosts have removed their rejected requests: repeat the erasure when all of them run (tributary status lists them)`,
    );
  return own || answers.some(({ removed }) => removed === true);
}

async function erase(
  { target, forgotten, listAllApps, context, now }: Erasure,
  {
    connection,
    ...stream
  }: Pick<DrainDependencies, 'publisher' | 'storeDir'> & { readonly connection: StreamConnection },
) {
  const { config, paths, clock, stop: signal } = context;
  const erased = await withEvents(context, engineLimits(context), (events) =>
    eraseEvents({ ...events, ...stream, signal }, target, {
      retentionMs: config.retentionMs,
      now,
      assertMeant: (found) => assertUnambiguousIds(found, target, listAllApps),
    }),
  );
  // An export may have begun to read just before.
  const reportsEndBy = new Date(clock.nowMs() + config.exportTimeoutMs + config.linkTtlSeconds * 1000).toISOString();
  const options = { clock, memoryMb: config.duckdbMemoryMb, signal };
  const segments = forgotten === undefined ? 0 : await removeIdsFromSegments(paths.segments, forgotten, options);
  // A killed query may have left rows.
  await removeStaleScratchDirs(queryScratchDir(paths.spool), 'erase');
  // The person of a rejected body is unknown: all bodies are removed, or all of the apps.
  const refusals = await removeAllRefusals(context, connection, target.apps);
  return {
    ...erased,
    ...(segments === 0 ? {} : { segments }),
    ...(refusals ? { refusals: true } : {}),
    reportsEndBy,
  };
}

/** Reads the apps of all accounts, removed ones included. An unreadable list is an error if it is needed. */
export function readAllApps({ paths }: OpenData): Promise<() => readonly AccountOfApp[]> {
  return Promise.all([listApps(paths), listApps(paths, true)]).then(
    (lists) => () => lists.flat(),
    (error: unknown) => () => {
      throw error;
    },
  );
}

/** Runs a broker and a compactor for the erasure if the service is stopped. */
export const eraseCommand = defineDataCommand({
  name: 'erase',
  summary: 'permanently erase the events of users, devices or an app',
  usage: [
    '[--user ID] [--device ID] [--file FILE [--id-type user|device]] [--user-id-type custom|platform|game] [--app ID | --account N] [--dry-run] [--yes] [--skip-retention] [--data DIR]',
  ],
  details: ['Erases the events that match all of --user, --device, --file, --app and --account.'],
  options: eraseOptions,
  examples: ['erase --user 4711 --dry-run', 'erase --file ids.txt --id-type device --account 1'],
  async run(commandOptions, context) {
    const { config, paths, clock } = context;
    const listAllApps = await readAllApps(context);
    const target = await parseErasure(commandOptions, listAllApps);
    const erasure = {
      target,
      forgotten: findIdsToRemove(target, commandOptions),
      listAllApps,
      context,
      now: commandOptions.skipRetention,
    };
    await ensureLake(paths.lake, { clock, retentionMs: config.retentionMs });
    if (commandOptions.dryRun || (!commandOptions.yes && context.confirm !== undefined)) {
      const survey = await withEvents(context, engineLimits(context), (events) => dryRunErasure(events, target));
      assertUnambiguousIds(survey.meanings, target, listAllApps);
      const { meanings: _, ...counts } = survey;
      if (commandOptions.dryRun) return { dryRun: true, ...counts };
      await confirmErasure(erasure, survey);
    }
    const logger = createLogger(config.logLevel, { role: 'erase' });
    const opened = await buildWithClosers(logger, async (closers) => {
      const stream = await openErasureStream(context, logger, closers);
      return { closers, erased: await erase(erasure, stream) };
    });
    await opened.closers.stop();
    const keepsVersions = await lakeStore(paths.lake).keepsVersions();
    if (keepsVersions !== false && config.storage.lake !== undefined)
      context.printMessage(
        keepsVersions === true
          ? `the bucket of ${config.storage.lake} keeps earlier versions of objects: the erased events stay in them until a lifecycle rule removes noncurrent versions`
          : `cannot read whether the bucket of ${config.storage.lake} keeps earlier versions of objects: if it does, the erased events stay in them`,
      );
    return withFormerNames('erasure', opened.erased);
  },
});
