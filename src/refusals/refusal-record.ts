/**
 * Refusals: what of an app was refused lately, and why, kept for whoever sends for it.
 *
 * In: records of refused requests whose token suited their app, from ingest. Out: the newest of an app, to the app's
 * sender, the users of its account and the operator.
 * Invariant: bounded by app, in all and by age (refusal-files.ts); no request waits for them, and none is durable.
 * Crash: the records of the last second are gone, or the last line of a file is cut off and passed over.
 */

/**
 * What is kept of the bodies of refused requests: nothing; their shape, with the names of known fields and neither
 * values nor names of the sender's own; or their text. The later ones show more.
 */
export const bodyPolicies = ['off', 'redacted', 'on'] as const;
export type BodyPolicy = (typeof bodyPolicies)[number];

/** One thing that was wrong with a request. */
export interface RefusalFault {
  /** JSON pointer into the body; empty: the request as a whole. */
  readonly pointer: string;
  readonly reason: string;
  /** What was probably meant. */
  readonly hint?: string;
}

/** Requests of an app that were refused alike within a second or so, as their sender sees them: below 8 KiB as JSON. */
export interface RefusalRecord {
  /** When the first of them was answered, ISO 8601. */
  readonly time: string;
  /** The import method; of another path the path. */
  readonly method: string;
  /** Status and text of the answer. */
  readonly status: number;
  readonly error: string;
  readonly detail: string;
  /** What was wrong with the first of them; a few of its faults. */
  readonly faults: readonly RefusalFault[];
  /** The event in question, or the beginning of the body, as the operator's setting shows it. */
  readonly excerpt?: string;
  /** Bytes of the first one's body as it was sent; 0 where it was not read. */
  readonly bytes: number;
  /** The first one had an Idempotency-Key. */
  readonly hasIdempotencyKey: boolean;
  /** The first one was only to be checked (`validate=1`). */
  readonly isValidation: boolean;
  /** How many they were. */
  readonly requests: number;
  /** Requests that were refused for other reasons since the record before, and have none: there were too many. */
  readonly leftOut?: number;
}

function isRecord(value: unknown): value is RefusalRecord {
  if (typeof value !== 'object' || value === null) return false;
  const { time, method, status, error, detail, faults, requests } = value as Partial<RefusalRecord>;
  return (
    [time, method, error, detail].every((text) => typeof text === 'string') &&
    [status, requests].every((count) => Number.isSafeInteger(count)) &&
    Number.isFinite(Date.parse(time ?? '')) &&
    Array.isArray(faults)
  );
}

/** Reads a line of a file of records; undefined where it was cut off or is damaged. */
export function parseRecord(line: string): RefusalRecord | undefined {
  try {
    const value: unknown = JSON.parse(line);
    return isRecord(value) ? value : undefined;
  } catch {
    return undefined;
  }
}
