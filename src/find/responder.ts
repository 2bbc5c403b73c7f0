import { startPollLoop } from '../runtime/async/poll-loop.ts';
import { createBoundedLog, failureBound } from '../runtime/conditions/bounded-log.ts';
import { describeError, isAppError } from '../runtime/errors.ts';
import type { Stoppable } from '../runtime/lifecycle.ts';
import type { Logger } from '../runtime/logger.ts';
import type { StreamConnection } from '../stream/connection.ts';
import { answerEventQuestions, type Answerer } from '../stream/event-questions.ts';
import { readTail } from '../stream/tail.ts';
import { createFinder, type FinderOptions } from './finder.ts';

interface ResponderDependencies {
  readonly connection: StreamConnection;
  readonly streamName: string;
  readonly logger: Logger;
}

/** Time limit of a response, ms: clients wait no longer. */
const answerWithinMs: Readonly<Record<Answerer, number>> = { compactor: 1500, 'stand-in': 1000 };
const upkeepEveryMs = 1000;
/** Files that are indexed in about 0.1 s, such as those of a flush. */
const maxIndexedBytes = 8 * 1024 * 1024;
/** Files of failed events that are read in about 0.1 s. */
const maxFailedFiles = 200;

/** Starts responding to lookups from the broker. A stand-in does not maintain the index, but reads missing parts. */
export function startResponder(
  { connection, streamName, logger: parent }: ResponderDependencies,
  options: Omit<FinderOptions, 'readTail' | 'maxIndexedBytes' | 'maxFailedFiles'>,
  answerer: Answerer = 'compactor',
): Stoppable {
  const logger = parent.child({ stage: 'find' });
  const failures = createBoundedLog((fields) => logger.warn(fields, 'event lookup failed'), failureBound);
  const finder = createFinder({
    ...options,
    ...(answerer === 'compactor' ? { maxIndexedBytes, maxFailedFiles } : {}),
    readTail: (from, limits, see) => readTail(connection, { ...from, streamName }, limits, see),
  });
  const questions = answerEventQuestions(connection, streamName, answerer, async ({ idApp, ...asked }) => {
    const deadlineMs = performance.now() + answerWithinMs[answerer];
    try {
      return { answer: await finder.find({ sought: { ...asked, idApp }, idApps: [idApp], deadlineMs }) };
    } catch (error) {
      // Responses contain no paths of the service.
      if (isAppError(error, 'overloaded')) return { busy: error.message };
      failures.add({ error: describeError(error) });
      return { busy: 'cannot read the lake' };
    }
  });
  const skipped = createBoundedLog(
    (fields) => logger.warn(fields, 'cannot index the event ids of a file, will retry'),
    failureBound,
  );
  const upkeep =
    answerer === 'stand-in'
      ? undefined
      : startPollLoop((signal) => finder.upkeep(signal), {
          everyMs: upkeepEveryMs,
          onError: (error) => skipped.add({ error: describeError(error) }),
          pausesFirst: true,
        });
  return {
    async stop() {
      questions.stop();
      await upkeep?.stop();
      await finder.close();
    },
  };
}
