import path from 'node:path';
import { randomUUID } from 'node:crypto';
import { createInterface } from 'node:readline';
import { Readable } from 'node:stream';
import type { Config } from '../config.ts';
import type { AccessPaths } from '../access/access-file.ts';
import { listApps } from '../access/apps.ts';
import {
  isUuid,
  makeRequestKeys,
  maskOfLake,
  naturalKeyFields,
  readKeyTexts,
  receivedAtOf,
  type KeyMask,
} from '../datasets/event-id.ts';
import type { EventLookupResult } from '../event-lookup/lookup-result.ts';
import { createEventFinder, type EventFinder } from '../event-lookup/finder.ts';
import type { ReadBacklog } from '../event-lookup/find-event.ts';
import type { LookupTarget } from '../lake/event-index/find-rows.ts';
import { ensureLakeId } from '../lake/identity.ts';
import { describeError, isAppError } from '../runtime/errors.ts';
import { buildWithClosers, type Closers } from '../runtime/lifecycle.ts';
import { createLogger, type Logger } from '../runtime/logger.ts';
import { openConnection } from '../stream/connection.ts';
import type { EventTarget } from '../stream/event-query-channel.ts';
import { readBacklog } from '../stream/read-backlog.ts';
import { defineDataCommand } from './command.ts';
import { findBroker } from './stop.ts';
import { optional, positive, failUsage, text, file, oneOf, withDefault } from './option-specs.ts';
import { openList } from './segment.ts';

/** Timeout of a lookup, with the first indexing of ids, ms. */
const answerWithinMs = 120_000;

/** Lookups that read the lake together. */
const lookupsAtOnce = 1000;
const listedBy = ['id', 'key', 'transaction'] as const;

/** Parses the lookups, in their order: a key may have several encodings. */
function parseLookupTarget(
  { id, key, transaction }: Readonly<Record<'id' | 'key' | 'transaction', string | undefined>>,
  idApp: number | undefined,
  mask: KeyMask,
): readonly LookupTarget[] {
  if ([id, key, transaction].filter((one) => one !== undefined).length !== 1)
    failUsage('pass exactly one of ID, --key and --transaction');
  if (id !== undefined) {
    const eventId = id.toLowerCase();
    if (!isUuid(eventId)) failUsage(`'${id}' is not an event id: it must be a UUID`);
    return [{ idApp, eventId }];
  }
  if (idApp === undefined) failUsage(`--${key === undefined ? 'transaction' : 'key'} needs --app`);
  const makeId = naturalKeyFields.get('idTransaction');
  if (transaction !== undefined && makeId !== undefined) return [{ idApp, eventId: makeId(idApp, transaction) }];
  const sent = readKeyTexts(key ?? '').filter((one) => one !== '');
  if (sent.length === 0) failUsage('--key must not be empty');
  return sent.flatMap((one) => makeRequestKeys(idApp, one, mask).map((requestKey) => ({ idApp, requestKey })));
}

/** Lists the apps to search: the named one, or all that are registered. */
async function listMeant(
  paths: AccessPaths,
  id: string | undefined,
  idApp: number | undefined,
): Promise<readonly number[]> {
  if (idApp !== undefined) return [idApp];
  const known = [...(await listApps(paths)), ...(await listApps(paths, true))].map((app) => Number(app.idApp));
  // An id that is a hash cannot be found without its app.
  if (known.length === 0 && id !== undefined && receivedAtOf(id) === undefined)
    failUsage('no app exists here: pass --app');
  return known;
}

/** Parses the lines of a file as lookups of one app. */
async function* readQueries(
  lines: AsyncIterable<string>,
  by: (typeof listedBy)[number],
  idApp: number,
  mask: KeyMask,
): AsyncGenerator<readonly EventTarget[]> {
  const none = { id: undefined, key: undefined, transaction: undefined };
  for await (const line of lines) {
    const word = line.trim();
    if (word === '') continue;
    yield parseLookupTarget({ ...none, [by]: word }, idApp, mask).map((target) =>
      'eventId' in target ? { eventId: target.eventId } : { requestKey: target.requestKey },
    );
  }
}

/** Looks up the lines of a file, and prints one result per line, in their order. */
async function printMany(
  eventFinder: EventFinder,
  queries: AsyncIterable<readonly EventTarget[]>,
  idApp: number,
  printResult: (result: object) => void,
): Promise<void> {
  let portion: (readonly EventTarget[])[] = [];
  const flush = async (): Promise<void> => {
    if (portion.length === 0) return;
    const deadlineMs = performance.now() + answerWithinMs;
    const { events, unchecked, watermark } = await eventFinder.findMany({ idApp, queries: portion, deadlineMs });
    for (const event of events)
      printResult({
        ...event,
        ...(event.state === 'unknown' ? { unchecked } : {}),
        ...(event.state === 'never_seen' && watermark !== undefined ? { watermark } : {}),
      });
    portion = [];
  };
  for await (const query of queries) {
    portion.push(query);
    if (portion.length === lookupsAtOnce) await flush();
  }
  await flush();
}

async function findFirst(
  eventFinder: EventFinder,
  lookupTargets: readonly LookupTarget[],
  idApps: readonly number[],
): Promise<EventLookupResult> {
  const deadlineMs = performance.now() + answerWithinMs;
  const [target, ...others] = lookupTargets;
  if (target === undefined) throw new Error('there is nothing to look up');
  if (others.length === 0) return eventFinder.find({ target, idApps, deadlineMs });
  try {
    const found = await eventFinder.find({ target, idApps, deadlineMs });
    if (found.state !== 'never_seen') return found;
  } catch (error) {
    // Without the stream an event can be found, but not be reported as never seen.
    if (!isAppError(error, 'broker_away')) throw error;
  }
  return findFirst(eventFinder, others, idApps);
}

/** Opens the stream; undefined if the broker is unreachable: the lake is searched anyway. */
async function openTail(config: Config, logger: Logger, closers: Closers): Promise<ReadBacklog | undefined> {
  const brokerConnection = findBroker(config);
  if (brokerConnection === undefined) return undefined;
  const { url, streamName } = brokerConnection;
  const connection = await openConnection({ url, name: 'tributary event', logger }).catch((error: unknown) => {
    if (!isAppError(error, 'broker_away')) throw error;
    logger.warn({ error: describeError(error) }, 'cannot read the stream');
    return undefined;
  });
  if (connection === undefined) return undefined;
  closers.add('stream', () => connection.close());
  return (from, limits, see) => readBacklog(connection, { ...from, streamName }, limits, see);
}

export const eventCommand = defineDataCommand({
  name: 'event',
  summary: 'look up an event: in the stream, in the lake, failed, erased or never seen',
  usage: [
    'ID [--app N] [--data DIR]',
    '--key KEY --app N [--data DIR]',
    '--transaction T --app N [--data DIR]',
    '--file FILE --app N [--by id|key|transaction] [--data DIR]',
  ],
  arguments: { ID: optional(text('event id, as in exports')) },
  options: {
    key: text('Idempotency-Key of a request, to look up its events', 'KEY'),
    transaction: text('idTransaction of a customRevenue event', 'T'),
    app: positive('id of the app that sent the event'),
    file: file('file with one id per line, to print one result per line; - for standard input'),
    by: withDefault(oneOf(listedBy, 'with --file: what its lines are'), 'id'),
  },
  details: ['An event that --file does not find is unknown, not never_seen, while a source cannot be searched.'],
  examples: [
    'event 01928f3e-6a2b-7c4d-8e5f-0123456789ab',
    'event --key order-4711 --app 7',
    'event --file keys.txt --by key --app 7',
  ],
  opens: 'lake',
  async run({ ID: id, key, transaction, app: idApp, file: list, by }, context) {
    const { config, paths, printResult } = context;
    const isMany = list !== undefined;
    if (isMany && [id, key, transaction].some((one) => one !== undefined))
      failUsage('--file excludes ID, --key and --transaction');
    const ofApp = isMany && idApp === undefined ? failUsage('--file needs --app') : (idApp ?? 0);
    const mask = maskOfLake(key === undefined && !isMany ? undefined : await ensureLakeId(paths.lake));
    const lookupTargets = isMany ? [] : parseLookupTarget({ id, key, transaction }, idApp, mask);
    const logger = createLogger(config.logLevel, { role: 'event' });
    const idApps = isMany ? [] : await listMeant(paths, id, idApp);
    const opened = await buildWithClosers(logger, async (closers) => {
      const eventFinder = createEventFinder({
        lakeDir: paths.lake,
        indexDir: paths.eventIndex,
        workDir: path.join(paths.spool, `event-${randomUUID()}`),
        readBacklog: await openTail(config, logger, closers),
      });
      closers.add('finder', () => eventFinder.close());
      if (isMany) {
        const lines = createInterface({ input: Readable.from(openList(list, context).pieces), crlfDelay: Infinity });
        await printMany(eventFinder, readQueries(lines, by, ofApp, mask), ofApp, printResult);
      } else printResult(await findFirst(eventFinder, lookupTargets, idApps));
      return closers;
    });
    await opened.stop();
  },
});
