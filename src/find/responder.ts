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
  /** Of the process that the responder runs in; it stays the caller's. */
  readonly connection: StreamConnection;
  readonly streamName: string;
  readonly logger: Logger;
}

/** A question is answered within this time, or not at all, milliseconds: who has asked does not wait longer. */
const answerWithinMs: Readonly<Record<Answerer, number>> = { compactor: 1500, 'stand-in': 1000 };
const upkeepEveryMs = 1000;
/** What is indexed in about a tenth of a second: what a flush brings, as a rule. */
const maxIndexedBytes = 8 * 1024 * 1024;
/** Files of failed events that are read in about as long. */
const maxFailedFiles = 200;

/**
 * Starts to answer the questions after events that come by the broker. A stand-in leaves the upkeep of the index to the
 * compactor's process, and so reads during a question whatever is missing, as far as there is time.
 */
export function startResponder(
  { connection, streamName, logger: parent }: ResponderDependencies,
  options: Omit<FinderOptions, 'readTail' | 'maxIndexedBytes' | 'maxFailedFiles'>,
  answerer: Answerer = 'compactor',
): Stoppable {
  const logger = parent.child({ stage: 'find' });
  const failures = createBoundedLog((fields) => logger.warn(fields, 'a question was not answered'), failureBound);
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
      // What the caller is told says nothing of the service's folders.
      if (isAppError(error, 'overloaded')) return { busy: error.message };
      failures.add({ error: describeError(error) });
      return { busy: 'the lake cannot be read at the moment' };
    }
  });
  const skipped = createBoundedLog((fields) => logger.warn(fields, 'the ids of a file were not indexed'), failureBound);
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
