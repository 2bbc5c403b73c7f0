import { isKeyOf } from '../runtime/files/checksummed-json.ts';
/** Responses by the reason of a refusal (docs/api.md#responses). `detail` names the validation error to the client. */
const answers = {
  version: { status: 400, error: 'Bad api version' },
  method: { status: 404, error: 'Method not found' },
  token: { status: 403, error: 'Forbidden' },
  size: { status: 400, error: 'Bad Request' },
  encoding: { status: 400, error: 'Bad Request' },
  empty: { status: 400, error: 'Empty post data' },
  json: { status: 400, error: 'Bad json' },
  rules: { status: 400, error: 'Bad Request' },
  protocol: { status: 400, error: 'Bad Request' },
  /** An Expect header other than 100-continue. */
  expectation: { status: 417, error: 'Bad Request' },
  /** Not stored: the queue or the stream is full, the broker is away, or the service is stopping. */
  unavailable: { status: 500, error: 'Internal Server Error' },
  /** The broker did not answer in time: the events may be stored. */
  unknown: { status: 500, error: 'Internal Server Error' },
  internal: { status: 500, error: 'Internal Server Error' },
  /** Only of queries: too many by one app; no response now. */
  quota: { status: 429, error: 'Too Many Requests' },
  busy: { status: 503, error: 'Service Unavailable' },
} as const satisfies Record<string, { status: number; error: string }>;

export type RefusalReason = keyof typeof answers;
export const refusalReasons = Object.keys(answers).filter((reason) => isKeyOf(answers, reason));
/** Reasons that no import is refused for. */
export const lookupReasons: readonly RefusalReason[] = ['quota', 'busy'];

export interface Refusal {
  readonly reason: RefusalReason;
  readonly detail: string;
  /** The content of `detail`, if it is about a place in the body. */
  readonly validationError?: ValidationError;
  /** Some names that no schema knows: one may be misspelt. */
  readonly unknownNames?: readonly string[];
  /** All faults, if the client asks for them. */
  readonly all?: ValidationErrors;
}

export interface ValidationErrors {
  readonly listed: readonly ValidationError[];
  /** Number of further faults. */
  readonly omitted: number;
}

export interface ValidationError {
  /** JSON pointer into the body; empty: the entire request. */
  readonly pointer: string;
  readonly reason: string;
  readonly hint?: string;
}

const bodies = new Map(refusalReasons.map((reason) => [reason, JSON.stringify({ error: answers[reason].error })]));

export function answerOf(reason: RefusalReason): {
  readonly status: number;
  readonly error: string;
  readonly body: string;
} {
  return { ...answers[reason], body: bodies.get(reason) ?? '' };
}

const maxDetailLength = 200;
/** Length of the end of a long detail, which has the rule; the pointer before it may be as long as a name. */
const keptEndLength = 80;
const gap = '...';
const maxNameLength = 60;

/** Escapes each unit of a text for a header: units other than printable ASCII become `\\uXXXX`. */
const escapeUnits = (text: string): string[] =>
  text
    .split('')
    .map((unit) => (/[\x20-\x7e]/.test(unit) ? unit : `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`));

/** Returns as many of the first units as fit, none of them cut. */
function takeUnits(units: readonly string[], most: number): string[] {
  let length = 0;
  const end = units.findIndex((unit) => (length += unit.length) > most);
  return end === -1 ? [...units] : units.slice(0, end);
}

/** Renders a detail for a header: printable ASCII, at most 200 characters, both ends of a longer one. */
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

/** Renders names for a header, comma-separated: as many as fit into 200 characters. */
export function renderNames(names: readonly string[]): string {
  let rendered = '';
  for (const name of names) {
    const next = rendered === '' ? renderName(name) : `${rendered}, ${renderName(name)}`;
    if (next.length > maxDetailLength) break;
    rendered = next;
  }
  return rendered;
}
