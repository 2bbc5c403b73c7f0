import type { Stoppable } from '../runtime/lifecycle.ts';
import type { Problem } from '../runtime/conditions/problem.ts';
import { pause } from '../runtime/async/retry.ts';
import type { Refusal, StreamConnection } from './connection.ts';

/**
 * Knows whether the broker answers, also while nobody sends or reads, and what it refuses: an idle service must not be
 * the last to find out.
 */
export interface Pulse extends Stoppable {
  problems(): readonly Problem[];
}

const beatEveryMs = 1000;
/** A busy broker's answer waits behind an fsync; one this late is no answer. */
const answerMs = 2000;

/** What is told while the broker does not answer: by whoever pings it, and by whoever cannot publish to it. */
export const brokerSilent: Problem = {
  code: 'broker_silent',
  what: 'the broker does not take events',
  todo: 'Nothing, if it is restarting or stalled for a moment: it goes on by itself. Otherwise look at its log lines and its disk; of an external one, at the cluster that TRIBUTARY_NATS_URL names.',
};

/** What is told of something that the broker refuses to this process. */
function refusalProblem({ words, todo }: Refusal): Problem {
  return { code: 'broker_refuses', what: `the broker refuses what the service asks of it: ${words}`, todo };
}

/** Starts to ping the broker once a second. */
export function startPulse(connection: StreamConnection): Pulse {
  const stopping = new AbortController();
  let answers = true;
  async function beat(): Promise<void> {
    while (!stopping.signal.aborted) {
      answers = await connection.ping(answerMs).then(
        () => true,
        () => false,
      );
      await pause(beatEveryMs, stopping.signal);
    }
  }
  void beat();
  return {
    problems() {
      const refusal = connection.refusal();
      return [...(answers ? [] : [brokerSilent]), ...(refusal === undefined ? [] : [refusalProblem(refusal)])];
    },
    stop: async () => stopping.abort(),
  };
}
