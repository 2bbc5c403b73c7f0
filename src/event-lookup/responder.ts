import { startPollLoop } from '../runtime/async/poll-loop.ts';
import { createRateLimitedLog, failureBound } from '../runtime/problems/rate-limited-log.ts';
import { describeError, isAppError } from '../runtime/errors.ts';
import type { Stoppable } from '../runtime/lifecycle.ts';
import type { Logger } from '../runtime/logger.ts';
import type { StreamConnection } from '../stream/connection.ts';
import { serveEventQueries, type Responder } from '../stream/event-query-channel.ts';
import { readBacklog } from '../stream/read-backlog.ts';
import { createEventFinder, type FinderOptions } from './finder.ts';

interface ResponderDependencies {
  readonly connection: StreamConnection;
  readonly streamName: string;
  readonly logger: Logger;
}

/** Time limit of a response, ms: clients wait no longer. */
const responseTimeoutMs: Readonly<Record<Responder, number>> = { compactor: 1500, 'stand-in': 1000 };
const maintenanceIntervalMs = 1000;
/** Files that are indexed in about 0.1 s, such as those of a flush. */
const maxIndexedBytes = 8 * 1024 * 1024;
/** Files of failed events that are read in about 0.1 s. */
const maxFailedFiles = 200;

/** Starts responding to lookups from the broker. A stand-in does not maintain the index, but reads missing parts. */
export function startResponder(
  { connection, streamName, logger: parent }: ResponderDependencies,
  options: Omit<FinderOptions, 'readBacklog' | 'maxIndexedBytes' | 'maxFailedFiles'>,
  responder: Responder = 'compactor',
): Stoppable {
  const logger = parent.child({ stage: 'find' });
  const failures = createRateLimitedLog((fields) => logger.warn(fields, 'event lookup failed'), failureBound);
  const eventFinder = createEventFinder({
    ...options,
    ...(responder === 'compactor' ? { maxIndexedBytes, maxFailedFiles } : {}),
    readBacklog: (from, limits, see) => readBacklog(connection, { ...from, streamName }, limits, see),
  });
  const eventQueries = serveEventQueries(connection, streamName, responder, async (query) => {
    const deadlineMs = performance.now() + responseTimeoutMs[responder];
    try {
      if ('queries' in query) return { answer: await eventFinder.findMany({ ...query, deadlineMs }) };
      const { idApp, ...target } = query;
      return { answer: await eventFinder.find({ target: { ...target, idApp }, idApps: [idApp], deadlineMs }) };
    } catch (error) {
      // Responses contain no paths of the service.
      if (isAppError(error, 'overloaded')) return { busy: error.message };
      failures.add({ error: describeError(error) });
      return { busy: 'cannot read the lake' };
    }
  });
  const indexFailures = createRateLimitedLog(
    (fields) => logger.warn(fields, 'cannot index the event ids of a file, will retry'),
    failureBound,
  );
  const maintenance =
    responder === 'stand-in'
      ? undefined
      : startPollLoop((signal) => eventFinder.maintain(signal), {
          everyMs: maintenanceIntervalMs,
          onError: (error) => indexFailures.add({ error: describeError(error) }),
          pausesFirst: true,
        });
  return {
    async stop() {
      eventQueries.stop();
      await maintenance?.stop();
      await eventFinder.close();
    },
  };
}
