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
  /** What `detail` says, where that is about a place in the body. */
  readonly fault?: Fault;
  /** Names of parameters that no schema knows, some of them: one may be meant for another. */
  readonly unknownNames?: readonly string[];
  /** Everything that is wrong, where the client has asked for it. */
  readonly all?: FaultList;
}

/** What is wrong with a request, as much of it as one answer names. */
export interface FaultList {
  readonly faults: readonly Fault[];
  /** How many more there are. */
  readonly leftOut: number;
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
/** The end of a long detail is kept: it has the rule, behind a pointer that may be as long as a name. */
const keptEndLength = 80;
const gap = '...';
const maxNameLength = 60;

/** Each unit of a text as a header may have it: printable ASCII; others become `\\uXXXX`. */
const escapeUnits = (text: string): string[] =>
  text
    .split('')
    .map((unit) => (/[\x20-\x7e]/.test(unit) ? unit : `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`));

/** As many of the first units as fit, none of them cut. */
function takeUnits(units: readonly string[], most: number): string[] {
  let length = 0;
  const end = units.findIndex((unit) => (length += unit.length) > most);
  return end === -1 ? [...units] : units.slice(0, end);
}

/** Makes a detail fit a header: printable ASCII, at most 200 characters, of a longer one both ends. */
export function renderDetail(detail: string): string {
  if (detail.length <= maxDetailLength && !/[^\x20-\x7e]/.test(detail)) return detail;
  const isLong = detail.length > 2 * maxDetailLength;
  const units = escapeUnits(isLong ? detail.slice(0, maxDetailLength) + detail.slice(-maxDetailLength) : detail);
  if (takeUnits(units, maxDetailLength).length === units.length) return units.join('');
  const end = takeUnits(units.toReversed(), keptEndLength).toReversed().join('');
  return `${takeUnits(units, maxDetailLength - gap.length - end.length).join('')}${gap}${end}`;
}

function renderName(name: string): string {
  // A comma separates names.
  const units = escapeUnits(name.slice(0, maxDetailLength)).map((unit) => (unit === ',' ? '\\u002c' : unit));
  const shown = takeUnits(units, maxNameLength);
  return shown.length === units.length ? shown.join('') : `${shown.join('')}${gap}`;
}

/** Makes names fit a header, with commas between, at most 200 characters: as many of them as fit, each by itself. */
export function renderNames(names: readonly string[]): string {
  let rendered = '';
  for (const name of names) {
    const next = rendered === '' ? renderName(name) : `${rendered}, ${renderName(name)}`;
    if (next.length > maxDetailLength) break;
    rendered = next;
  }
  return rendered;
}
