import path from 'node:path';
import { randomUUID } from 'node:crypto';
import { dataPaths, type Config } from '../config.ts';
import { listApps } from '../access/listing.ts';
import { isOwnId, makeRequestKey } from '../datasets/event-id.ts';
import { createFinder } from '../find/finder.ts';
import type { ReadTail } from '../find/find-event.ts';
import type { Sought } from '../lake/find/find-rows.ts';
import { AppError } from '../runtime/errors.ts';
import { buildWithClosers, type Closers } from '../runtime/lifecycle.ts';
import { createLogger, type Logger } from '../runtime/logger.ts';
import { readServiceStates } from '../runtime/processes/service-state.ts';
import { openConnection } from '../stream/connection.ts';
import { readTail } from '../stream/tail.ts';
import { assertLake } from './data-folder.ts';
import { parseId, parseWords, resolveConfig, type Command } from './command.ts';

const usage = 'tributary event ID [--app N] [--data DIR]\n       tributary event --key KEY --app N [--data DIR]';
const options = { app: { type: 'string' }, key: { type: 'string' } } as const;
/** A person waits for it, and the first time ids may have to be indexed. */
const answerWithinMs = 120_000;

function parseSought(id: string | undefined, key: string | undefined, idApp: number | undefined): Sought {
  if (key !== undefined) {
    if (idApp === undefined) throw new AppError('usage', '--key needs the app', { hint: `Usage: ${usage}` });
    return { idApp, requestKey: makeRequestKey(idApp, Buffer.from(key).toString('latin1').trim()) };
  }
  const eventId = id?.toLowerCase() ?? '';
  if (!isOwnId(eventId)) throw new AppError('usage', `'${id ?? ''}' is no event id as exports have it`);
  return { idApp, eventId };
}

/**
 * Opens the stream of the running service, or the one that TRIBUTARY_NATS_URL names; undefined: an embedded broker that
 * does not run.
 */
async function openTail(config: Config, logger: Logger, closers: Closers): Promise<ReadTail | undefined> {
  const running = readServiceStates(dataPaths(config.dataDir).run).find((state) => state.natsUrl !== undefined);
  const url = running?.natsUrl ?? config.natsUrl;
  if (url === undefined) return undefined;
  const connection = await openConnection({ url, name: 'tributary event', logger });
  closers.add('stream', () => connection.close());
  const streamName = running?.streamName ?? config.streamName;
  return (from, limits, see) => readTail(connection, { ...from, streamName }, limits, see);
}

/** `tributary event`: where an event is, or those of a request under an Idempotency-Key. */
export const eventCommand: Command = {
  name: 'event',
  usage,
  summary: 'where an event is: in the stream, in the lake, failed, erased, never seen',
  details: [
    'ID         the id of an event, as exports have it',
    '--key      the Idempotency-Key of a request: each of its events is looked for',
    '--app      the app that has sent it: another app has no such event',
  ],
  async run(args, { environment, answer }) {
    const hasKey = args.some((word) => word === '--key' || word.startsWith('--key='));
    const { values, positionals } = parseWords(args, hasKey ? [] : ['ID'], options, usage);
    const idApp = values.app === undefined ? undefined : parseId(values.app, '--app');
    const sought = parseSought(positionals[0], values.key, idApp);
    const config = resolveConfig(environment, { TRIBUTARY_DATA_DIR: values.data });
    assertLake(config);
    const paths = dataPaths(config.dataDir);
    const logger = createLogger(config.logLevel, { role: 'event' });
    const erasedApps =
      idApp === undefined ? [...listApps(paths), ...listApps(paths, true)].map((app) => Number(app.idApp)) : [idApp];
    const opened = await buildWithClosers(logger, async (closers) => {
      const finder = createFinder({
        lakeDir: paths.lake,
        indexDir: paths.eventIndex,
        workDir: path.join(paths.spool, `event-${randomUUID()}`),
        readTail: await openTail(config, logger, closers),
      });
      closers.add('finder', () => finder.close());
      answer(await finder.find({ sought, erasedApps, deadlineMs: performance.now() + answerWithinMs }));
      return closers;
    });
    await opened.stop();
  },
};
