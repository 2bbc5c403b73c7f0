import { eventFields } from '../datasets/event-fields.ts';
import { getMethod } from '../datasets/dataset.ts';
import type { BodyPolicy, RefusalFault } from '../refusals/refusal-record.ts';
import { decodeBody, readEvents, type ImportRequest } from './import-request.ts';
import type { Refusal } from './refusal.ts';
import { listFaults, toFault } from './request-faults.ts';

/** What a record says of a request's body. */
export interface BodyDescription {
  readonly detail: string;
  readonly faults: readonly RefusalFault[];
  readonly excerpt?: string;
}

const maxExcerptLength = 500;
const maxTextLength = 200;
const maxPathLength = 100;
const maxFaults = 10;
const knownNames: ReadonlySet<string> = new Set(eventFields.map(({ name }) => name));

/** Replaces what a pointer has of the sender's own: names that no schema knows. */
function redactPointer(pointer: string): string {
  return pointer
    .split('/')
    .map((part) => (part === '' || knownNames.has(part) || /^\d{1,2}$/.test(part) ? part : '*'))
    .join('/');
}

/**
 * What the service's log says of a refusal: what an operator shows of bodies to their app's owner is not what everybody
 * may read there.
 */
export function describeForLog({ fault, detail }: Refusal): string {
  return fault === undefined || fault.pointer === '' ? detail : `${redactPointer(fault.pointer)} ${fault.reason}`;
}

/** Replaces all of a path but the version and what may be the misspelt name of a method: it may hold an id. */
function redactPath(path: string): string {
  const parts = path.split('/');
  const methodAt = /^v\d{1,3}$/i.test(parts[1] ?? '') ? 2 : 1;
  const isShown = (part: string, at: number): boolean =>
    part === '' || at < methodAt || (at === methodAt && /^[A-Za-z_-]{1,40}$/.test(part));
  return parts.map((part, at) => (isShown(part, at) ? part : '*')).join('/');
}

/** The path of a request that is to no method, as far as the policy lets it be seen. */
export function describePath(policy: BodyPolicy, path: string): string {
  return cut(policy === 'on' ? path : redactPath(path), maxPathLength);
}

function redactValue(value: unknown, isNested: boolean): unknown {
  if (value === null) return null;
  if (typeof value === 'string') return `<text of ${value.length}>`;
  if (typeof value !== 'object') return `<${typeof value}>`;
  if (Array.isArray(value)) return `<list of ${value.length}>`;
  const entries = Object.entries(value);
  if (isNested) return `<object of ${entries.length}>`;
  const known = entries.filter(([name]) => knownNames.has(name));
  const unknown = entries.length - known.length;
  return {
    ...Object.fromEntries(known.map(([name, member]) => [name, redactValue(member, true)])),
    ...(unknown === 0 ? {} : { '<unknown>': unknown }),
  };
}

function cut(text: string, most: number): string {
  return (text.length <= most ? text : `${text.slice(0, most)}...`).toWellFormed();
}

/** The event as JSON; of a long one the member that is wrong. */
function renderEvent(event: unknown, name: string | undefined): string {
  const text = JSON.stringify(event);
  const isMember = name !== undefined && typeof event === 'object' && event !== null && Object.hasOwn(event, name);
  if (text.length <= maxExcerptLength || !isMember) return cut(text, maxExcerptLength);
  return cut(JSON.stringify({ [name]: (event as Record<string, unknown>)[name] }), maxExcerptLength);
}

/** The event that a fault is in, or the body's beginning where that is no list of events. */
function renderExcerpt(policy: BodyPolicy, request: ImportRequest, pointer: string): string | undefined {
  const values = readEvents(request);
  if ('reason' in values) {
    const body = policy === 'on' ? decodeBody(request) : undefined;
    return body === undefined || 'reason' in body
      ? undefined
      : cut(body.toString('utf8', 0, 4 * maxExcerptLength), maxExcerptLength);
  }
  const parts = pointer.split('/').slice(1);
  const index = getMethod(request.method).batch ? Number(parts.shift() ?? 0) : 0;
  const value = values[index];
  return value === undefined ? undefined : renderEvent(policy === 'on' ? value : redactValue(value, false), parts[0]);
}

/** Describes what was wrong with a request and where, as far as the policy lets its body be seen. */
export function describeBody(policy: BodyPolicy, request: ImportRequest, refusal: Refusal): BodyDescription {
  const found = listFaults(request, refusal).faults.slice(0, maxFaults);
  const shown = (pointer: string, most = maxTextLength): string =>
    cut(policy === 'on' ? pointer : redactPointer(pointer), most);
  const faults = found.map((fault) => ({
    ...fault,
    pointer: shown(fault.pointer),
    reason: cut(fault.reason, maxTextLength),
  }));
  const { pointer, reason } = toFault(refusal);
  // A detail that begins with a pointer has what the pointer has: it is written anew. Of a long one the rule stays.
  const detail =
    pointer === '' ? refusal.detail : `${shown(pointer, Math.max(0, maxTextLength - reason.length - 4))} ${reason}`;
  const excerpt = policy === 'off' ? undefined : renderExcerpt(policy, request, pointer);
  return { detail: cut(detail, maxTextLength), faults, ...(excerpt === undefined ? {} : { excerpt }) };
}
