import { describeError } from '../runtime/errors.ts';
import type { Problem } from '../runtime/conditions/problem.ts';
import type { Logger } from '../runtime/logger.ts';
import { describeRefused } from './broker-errors.ts';

/** The failures of looks at the stream: logged when they begin, a problem when the broker refuses the look. */
export interface LookFailures {
  /** The last look failed. */
  isFailing(): boolean;
  /** Takes the error of a look; returns the problem when this one and the look before have failed. */
  record(error: unknown): Problem | undefined;
  /** The last look succeeded. */
  clear(): void;
}

/** Creates the record of looks none of which has failed. */
export function createLookFailures(streamName: string, logger: Logger): LookFailures {
  let failing = false;
  return {
    isFailing: () => failing,
    record(error) {
      // The first failure alone is no finding: JetStream comes up a moment after its server.
      const refused = failing ? describeRefused(error, `look at the stream ${streamName}`) : undefined;
      // Logged once: the next look follows at once, and the pings report a broker that is away.
      if (!failing) logger.warn({ error: describeError(error) }, 'the stream cannot be looked at, will retry');
      failing = true;
      return refused;
    },
    clear() {
      failing = false;
    },
  };
}
