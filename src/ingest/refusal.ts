/**
 * The closed list of reasons for which a request is refused, and the answers of service.md 7.1 that they become. The
 * client's developer finds the fault in `detail` (a JSON pointer and the rule), which travels in a header and the log.
 */
const answers = {
  version: { status: 400, error: 'Bad api version' },
  method: { status: 404, error: 'Method not found' },
  token: { status: 403, error: 'Forbidden' },
  size: { status: 400, error: 'Bad Request' },
  encoding: { status: 400, error: 'Bad Request' },
  empty: { status: 400, error: 'Empty post data' },
  json: { status: 400, error: 'Bad json' },
  rules: { status: 400, error: 'Bad Request' },
  /** The bytes were no HTTP request, or came too slowly. */
  protocol: { status: 400, error: 'Bad Request' },
  /** An Expect header that asks for something else than 100-continue. */
  expectation: { status: 417, error: 'Bad Request' },
  /** Not stored: the waiting room or the stream is full, the broker is away, or the service is stopping. */
  unavailable: { status: 500, error: 'Internal Server Error' },
  /** No answer from the broker in time: the events may be stored. */
  unknown: { status: 500, error: 'Internal Server Error' },
  internal: { status: 500, error: 'Internal Server Error' },
  /** Only where an event is asked for: too often by one app; and not to be answered now. */
  quota: { status: 429, error: 'Too Many Requests' },
  busy: { status: 503, error: 'Service Unavailable' },
} as const satisfies Record<string, { status: number; error: string }>;

export type RefusalReason = keyof typeof answers;
export const refusalReasons = Object.keys(answers) as RefusalReason[];
/** Reasons that no request to import events is refused for. */
export const lookUpReasons: readonly RefusalReason[] = ['quota', 'busy'];

/** Why a request is not taken. */
export interface Refusal {
  readonly reason: RefusalReason;
  readonly detail: string;
  /** Everything that is wrong, where the client has asked for it. */
  readonly faults?: readonly Fault[];
}

/** One thing that is wrong with a request. */
export interface Fault {
  /** JSON pointer into the body; empty: the request as a whole. */
  readonly pointer: string;
  readonly reason: string;
  /** What was probably meant. */
  readonly hint?: string;
}

const bodies = Object.fromEntries(
  Object.entries(answers).map(([reason, { error }]) => [reason, JSON.stringify({ error })]),
) as Record<RefusalReason, string>;

/** Status and body of the answer to a refusal. */
export function answerOf(reason: RefusalReason): {
  readonly status: number;
  readonly error: string;
  readonly body: string;
} {
  return { ...answers[reason], body: bodies[reason] };
}

const maxDetailLength = 200;

/** Makes a detail fit a header: printable ASCII, at most 200 characters; other characters become `\\uXXXX`. */
export function renderDetail(detail: string): string {
  const ascii = detail
    .slice(0, maxDetailLength)
    .replaceAll(/[^\x20-\x7e]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`);
  return ascii.length > maxDetailLength ? `${ascii.slice(0, maxDetailLength - 3)}...` : ascii;
}
