import type { Stoppable } from '../runtime/lifecycle.ts';
import type { Problem } from '../runtime/conditions/problem.ts';
import { startPollLoop } from '../runtime/async/poll-loop.ts';
import type { Refusal } from './broker-errors.ts';
import type { StreamConnection } from './connection.ts';

/**
 * Knows whether the broker answers, also while nobody sends or reads, and what it refuses: an idle service must not be
 * the last to find out.
 */
export interface BrokerPing extends Stoppable {
  problems(): readonly Problem[];
}

/** Between pings while the broker answers, and while it does not, milliseconds. A connection that ends is seen at once. */
const pingEveryMs = { well: 3000, silent: 1000 } as const;
/** A busy broker's answer waits behind an fsync; one this late is no answer. */
const answerMs = 2000;

/** The problem while the broker does not answer: of whoever pings it, and of whoever cannot publish to it. */
export const brokerSilent: Problem = {
  code: 'broker_silent',
  what: 'the broker does not take events',
  todo: 'Nothing, if it is restarting or stalled for a moment: it goes on by itself. Otherwise look at its log lines and its disk; of an external one, at the cluster that TRIBUTARY_NATS_URL names.',
};

/** The problem of something that the broker refuses to this process. */
function refusalProblem({ words, todo }: Refusal): Problem {
  return { code: 'broker_refuses', what: `the broker refuses what the service asks of it: ${words}`, todo };
}

/** Starts to ping the broker every few seconds. */
export function startBrokerPing(connection: StreamConnection): BrokerPing {
  let answers = true;
  const loop = startPollLoop(
    async () => {
      await connection.ping(answerMs);
      answers = true;
    },
    {
      everyMs: () => pingEveryMs[answers ? 'well' : 'silent'],
      onError() {
        answers = false;
      },
    },
  );
  return {
    problems() {
      const refusal = connection.refusal();
      return [...(answers ? [] : [brokerSilent]), ...(refusal === undefined ? [] : [refusalProblem(refusal)])];
    },
    // Not waited for: a stalled broker leaves the ping without an answer.
    stop: async () => void loop.stop(),
  };
}
