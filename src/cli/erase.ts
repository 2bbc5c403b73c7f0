import path from 'node:path';
import { listApps } from '../access/apps.ts';
import { ensureLake, isCompactorRunning } from '../lake/lake.ts';
import type { DrainDependencies } from '../operate/erase/drain.ts';
import { eraseEvents, surveyErasure, type ErasureSurvey } from '../operate/erase/erase.ts';
import type { UserMeaning } from '../operate/erase/erase-table.ts';
import { userKinds, type ErasureTarget } from '../operate/erase/erase-target.ts';
import { forgetIds, type ForgottenIds } from '../operate/lists/add-segment.ts';
import { removeRefusals } from '../refusals/refusal-files.ts';
import { AppError } from '../runtime/errors.ts';
import { getTextFile } from '../runtime/files/input-file.ts';
import { clearWorkRooms } from '../runtime/files/work-files.ts';
import { buildWithClosers, type Closers } from '../runtime/lifecycle.ts';
import { withFormerNames } from '../runtime/former-names.ts';
import { createLogger, type Logger } from '../runtime/logger.ts';
import { readServiceStates } from '../runtime/processes/service-state.ts';
import { startService } from '../service.ts';
import { openConnection } from '../stream/connection.ts';
import { openGuard } from '../stream/guard.ts';
import { openPublisher } from '../stream/publisher.ts';
import { dataVerb, queryRooms, type DataContext, type OpenData, type OptionValues } from './command.ts';
import { file, flag, oneOf, positive, present, refuse, text, withDefault } from './words.ts';
import { withEvents } from './lake-engine.ts';
import { findBroker } from './stop.ts';

const eraseOptions = {
  user: text('events of this user', 'ID'),
  device: text('events of this device', 'ID'),
  file: file('ids, one a line, of users or, with --as device, of devices'),
  as: withDefault(oneOf(['user', 'device'], 'what the ids of --file are'), 'user'),
  kind: oneOf(userKinds, 'what kind of user id it is, where several are meant'),
  app: positive('events of this app', 'ID'),
  account: positive('the apps of one account only'),
  dryRun: flag('count, and change nothing'),
  yes: flag('do not ask on a terminal'),
  now: flag('wait for no reader of the lake: its queries may fail'),
} as const;

type EraseWords = Partial<OptionValues<typeof eraseOptions>>;

/** The account of an app, removed apps included. */
export interface AccountOfApp {
  readonly idApp: string;
  readonly idAccount: string;
}

const named = 3;

/** Reads ids, one per line; only the end of a line is not part of an id. */
async function readIds(name: string): Promise<string[]> {
  const lines = await getTextFile(name).catch((error: unknown) => {
    throw new AppError('usage', `cannot read ${name}`, { cause: error });
  });
  return [...new Set(lines.split(/\r?\n/).filter((line) => line !== ''))];
}

/** Returns the app of `--app`, or all apps of `--account`, removed ones included. */
function parseApps(
  app: number | undefined,
  account: number | undefined,
  listAllApps: () => readonly AccountOfApp[],
): number[] | undefined {
  if (app !== undefined && account !== undefined) refuse('--app and --account exclude each other');
  if (app !== undefined) return [app];
  if (account === undefined) return undefined;
  const idAccount = String(account);
  const apps = listAllApps()
    .filter((each) => each.idAccount === idAccount)
    .map(({ idApp }) => Number(idApp));
  if (apps.length === 0)
    throw new AppError('not_found', `account ${idAccount} has no app`, { hint: "'tributary app list' names them." });
  return apps;
}

export async function parseErasure(
  { user, device, app, account, kind: userKind, file: list, as = 'user' }: EraseWords,
  listAllApps: () => readonly AccountOfApp[],
): Promise<ErasureTarget> {
  if (list !== undefined && (as === 'user' ? user : device) !== undefined)
    refuse(`--${as} and --file name the same kind of id: put them into the file`);
  const ids = list === undefined ? undefined : await readIds(list);
  const users = ids !== undefined && as === 'user' ? ids : user === undefined ? undefined : [user];
  const devices = ids !== undefined && as === 'device' ? ids : device === undefined ? undefined : [device];
  if (userKind !== undefined && users === undefined) refuse('--kind says what kind of id --user or --file names');
  const apps = parseApps(app, account, listAllApps);
  // `--account` alone would erase a whole account.
  if (users === undefined && devices === undefined && app === undefined)
    refuse("'erase' needs --user, --device, --file or --app");
  return present({ users, userKind, devices, apps });
}

function describeIds(ids: readonly string[]): string {
  return `${ids
    .slice(0, named)
    .map((id) => `'${id}'`)
    .join(', ')}${ids.length > named ? ` and ${ids.length - named} more` : ''}`;
}

/** Returns the ids with several meanings, by a property of a meaning. */
function findAmbiguous(found: readonly UserMeaning[], of: (meaning: UserMeaning) => string): string[] {
  const seen = new Map<string, Set<string>>();
  for (const meaning of found) seen.set(meaning.id, (seen.get(meaning.id) ?? new Set()).add(of(meaning)));
  return [...seen].flatMap(([id, meanings]) => (meanings.size > 1 ? [id] : []));
}

/**
 * Refuses ids of several people: user ids of several kinds, or in apps of several accounts. Error: `usage`, with the
 * option that distinguishes them.
 */
export function assertOneMeaning(
  found: readonly UserMeaning[],
  target: ErasureTarget,
  listAllApps: () => readonly AccountOfApp[],
): void {
  if (target.apps === undefined) {
    const accounts = new Map(listAllApps().map(({ idApp, idAccount }) => [Number(idApp), idAccount]));
    const several = findAmbiguous(found, ({ idApp }) => accounts.get(idApp) ?? `the account of app ${idApp}`);
    if (several.length > 0)
      throw new AppError('usage', `${describeIds(several)} stands in events of several accounts: nothing was erased`, {
        hint: 'Name the account by --account, or the app by --app.',
      });
  }
  if (target.userKind !== undefined) return;
  const several = findAmbiguous(found, ({ kind }) => kind);
  if (several.length > 0)
    throw new AppError(
      'usage',
      `${describeIds(several)} stands in events as user ids of several kinds (${[...new Set(found.map(({ kind }) => kind))].join(', ')}): nothing was erased`,
      { hint: 'Name the kind by --kind.' },
    );
}

/**
 * Returns the ids to remove from segments: custom user ids or device ids, of one account if it is named. None if only
 * some of a person's events match: those of one app, or of a user on one device.
 */
export function findForgotten(
  { users, userKind, devices }: ErasureTarget,
  { app, account }: { readonly app?: number | undefined; readonly account?: number | undefined },
): ForgottenIds | undefined {
  if (app !== undefined || (users !== undefined && devices !== undefined)) return undefined;
  const within = account === undefined ? {} : { idAccount: account };
  if (devices !== undefined) return { kind: 'device', ids: devices, ...within };
  const isCustom = userKind === undefined || userKind === 'custom';
  return users !== undefined && isCustom ? { kind: 'custom', ids: users, ...within } : undefined;
}

/** Half of the memory setting: the other half is for the program and for what the engine does not count. */
function engineLimits({ config: { duckdbMemoryMb } }: OpenData): { memoryMb: number; threads: number } {
  return { memoryMb: Math.max(128, Math.ceil(duckdbMemoryMb / 2)), threads: duckdbMemoryMb < 1024 ? 1 : 2 };
}

interface Erasure {
  readonly target: ErasureTarget;
  readonly forgotten: ForgottenIds | undefined;
  readonly listAllApps: () => readonly AccountOfApp[];
  readonly context: DataContext;
  /** Do not wait for readers of the lake. */
  readonly now: boolean;
}

/** Shows a person what matches. Error: `usage` unless confirmed. */
async function confirmErasure({ now, context }: Erasure, survey: ErasureSurvey): Promise<void> {
  const { config, clock } = context;
  const { rows, failedEvents, filesToRewrite } = survey;
  const history = now
    ? 'now, and whoever still reads ends with an error'
    : `at ${new Date(clock.nowMs() + config.retentionMs).toISOString()}`;
  context.note(
    `${rows} events in ${filesToRewrite} files and ${failedEvents} failed events match, and what still waits in the stream. They are removed for good; the lake's history before this moment goes with them, ${history}.`,
  );
  if (!(await context.confirm?.('Erase them?')))
    throw new AppError('usage', 'nothing was erased', { hint: 'Answer yes, or pass --yes.' });
}

/** Opens the stream of the running service, or of one that is started for the erasure. */
async function openErasureStream({ config, paths, entry, environment }: DataContext, logger: Logger, closers: Closers) {
  const states = readServiceStates(paths.run);
  // A killed compactor is restarted by its supervisor.
  const isSupervised = states.some(({ processes }) => processes.some(({ name }) => name === 'compact'));
  if (!isSupervised && !isCompactorRunning(paths.lake)) {
    const service = await startService({ config, roles: ['compact'], entry, environment, logger });
    closers.add('service', () => service.stop());
  }
  const broker = findBroker(config);
  if (broker === undefined)
    throw new AppError('broker_away', 'cannot find the broker of the running service', {
      hint: 'Name it by TRIBUTARY_NATS_URL.',
    });
  const connection = await openConnection({ url: broker.url, name: 'tributary erase', logger });
  closers.add('stream', () => connection.close());
  const guard = await openGuard(connection, { streamName: broker.streamName, claimFile: paths.claim, logger });
  closers.add('stream guard', () => guard.stop());
  return {
    publisher: openPublisher(connection, guard),
    ...(broker.isOwn ? { storeDir: path.join(paths.nats, 'store') } : {}),
  };
}

async function erase(
  { target, forgotten, listAllApps, context, now }: Erasure,
  stream: Pick<DrainDependencies, 'publisher' | 'storeDir'>,
) {
  const { config, paths, clock, stop: signal } = context;
  const erased = await withEvents(context, engineLimits(context), (events) =>
    eraseEvents({ ...events, ...stream, signal }, target, {
      retentionMs: config.retentionMs,
      now,
      assertMeant: (found) => assertOneMeaning(found, target, listAllApps),
    }),
  );
  // An export may have begun to read just before.
  const reportsEndBy = new Date(clock.nowMs() + config.exportTimeoutMs + config.linkTtlSeconds * 1000).toISOString();
  const options = { clock, memoryMb: config.duckdbMemoryMb, signal };
  const segments = forgotten === undefined ? 0 : await forgetIds(paths.segments, forgotten, options);
  // A killed query may have left rows.
  await clearWorkRooms(queryRooms(paths.spool), 'erase');
  // The person of a rejected body is unknown: all bodies are removed, or all of the apps.
  const refusals = await removeRefusals(paths.refusals, target.apps);
  return {
    ...erased,
    ...(segments === 0 ? {} : { segments }),
    ...(refusals ? { refusals: true } : {}),
    reportsEndBy,
  };
}

/** With the service stopped, it runs a broker and a compactor for the erasure. */
export const eraseCommand = dataVerb({
  name: 'erase',
  summary: 'remove the events of users, devices or an app for good',
  usage: [
    '[--user ID] [--device ID] [--file FILE [--as user|device]] [--kind custom|platform|game] [--app ID | --account N] [--dry-run] [--yes] [--now] [--data DIR]',
  ],
  details: [
    'Of several of --user, --device, --file, --app and --account, the events that match all; each is given once.',
  ],
  options: eraseOptions,
  examples: ['erase --user 4711 --dry-run', 'erase --file ids.txt --as device --account 1'],
  async run(given, context) {
    const { config, paths, clock } = context;
    // A list that cannot be read matters only if it is needed: not with --app.
    const listAllApps = await Promise.all([listApps(paths), listApps(paths, true)]).then(
      (lists) => () => lists.flat(),
      (error: unknown) => () => {
        throw error;
      },
    );
    const target = await parseErasure(given, listAllApps);
    const erasure = { target, forgotten: findForgotten(target, given), listAllApps, context, now: given.now };
    await ensureLake(paths.lake, { clock, retentionMs: config.retentionMs });
    if (given.dryRun || (!given.yes && context.confirm !== undefined)) {
      const survey = await withEvents(context, engineLimits(context), (events) => surveyErasure(events, target));
      assertOneMeaning(survey.meanings, target, listAllApps);
      const { meanings: _, ...counts } = survey;
      if (given.dryRun) return { dryRun: true, ...counts };
      await confirmErasure(erasure, survey);
    }
    const logger = createLogger(config.logLevel, { role: 'erase' });
    const opened = await buildWithClosers(logger, async (closers) => {
      const stream = await openErasureStream(context, logger, closers);
      return { closers, erased: await erase(erasure, stream) };
    });
    await opened.closers.stop();
    return withFormerNames('erasure', opened.erased);
  },
});
